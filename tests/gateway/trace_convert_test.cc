#include "gateway/trace_convert.h"

#include <gtest/gtest.h>

#include "gateway/answer_convert.h"

namespace nacre::gateway {
namespace {

v1::Chunk TracedChunk() {
  v1::Chunk chunk;
  chunk.set_text("ab<i>");
  v1::ChunkTrace* const trace = chunk.mutable_trace();
  trace->add_origins(v1::TOKEN_ORIGIN_DRAFT);
  trace->add_text_bytes(1);
  trace->add_origins(v1::TOKEN_ORIGIN_BRANCH);
  trace->add_text_bytes(0);
  trace->add_origins(v1::TOKEN_ORIGIN_SUFFIX);
  trace->add_text_bytes(1);
  trace->add_origins(v1::TOKEN_ORIGIN_TARGET);
  trace->add_text_bytes(3);
  trace->set_window(4);
  trace->set_verified(3);
  trace->set_accepted(2);
  return chunk;
}

TEST(TraceConvertTest, EachTokenHasItsTextAndItsOrigin) {
  const OrderedJson json = TraceOf(TracedChunk());
  EXPECT_EQ(Dump(json["tokens"]),
            R"([{"text":"a","origin":"draft"},{"text":"","origin":"branch"},)"
            R"({"text":"b","origin":"suffix"},)"
            R"({"text":"<i>","origin":"target"}])");
  EXPECT_EQ(json["window"], 4);
  EXPECT_EQ(json["verified"], 3);
  EXPECT_EQ(json["accepted"], 2);
  EXPECT_EQ(json["degraded"], false);
  EXPECT_EQ(Dump(json["lanes"]), "[]");
}

TEST(TraceConvertTest, SpansAreOnTheCoordinatorsClock) {
  v1::Chunk chunk = TracedChunk();
  v1::TraceLane* const lane = chunk.mutable_trace()->add_lanes();
  lane->set_role(v1::WORKER_ROLE_DRAFT);
  lane->set_address("h:1");
  lane->set_clock_offset_ns(-1'000'000);
  v1::Span* const span = lane->add_spans();
  span->set_kind(v1::Span::KIND_WAIT_VERDICT);
  span->set_start_ns(2'000'400);
  span->set_duration_ns(1'234'567);
  span->set_rows(2);
  span->set_batch_sessions(3);
  EXPECT_EQ(Dump(TraceOf(chunk)["lanes"]),
            R"([{"role":"draft","address":"h:1","spans":[)"
            R"({"kind":"wait_verdict","start_ms":3.0,"ms":1.235,"rows":2,)"
            R"("sessions":3}]}])");
  v1::Complete complete;
  *complete.mutable_trace() = chunk.trace().lanes();
  EXPECT_EQ(Dump(TraceOf(complete)["lanes"]), Dump(TraceOf(chunk)["lanes"]));
}

// A coordinator that says too much, or values of a later version.
TEST(TraceConvertTest, WhatDoesNotFitTheTextIsCut) {
  v1::Chunk chunk;
  chunk.set_text("ab");
  chunk.mutable_trace()->add_origins(v1::TOKEN_ORIGIN_DRAFT);
  chunk.mutable_trace()->add_text_bytes(90);
  chunk.mutable_trace()->add_origins(static_cast<v1::TokenOrigin>(77));
  chunk.mutable_trace()->add_text_bytes(5);
  chunk.mutable_trace()->add_text_bytes(5);
  EXPECT_EQ(Dump(TraceOf(chunk)["tokens"]),
            R"([{"text":"ab","origin":"draft"},)"
            R"({"text":"","origin":"unknown"}])");
}

TEST(TraceConvertTest, EventsHaveItWhereTheServiceSaysIt) {
  const auto tokenizer = *tokenizer::LoadTokenizer(NACRE_MODELS "/target");
  const ApiRequest request;
  AnswerFormat format(&request, tokenizer.get(), {"id", "m", "f", 5}, {{1}});
  v1::Chunk chunk;
  EXPECT_EQ(format.Piece(0, chunk), "");
  chunk = TracedChunk();
  const OrderedJson piece = OrderedJson::parse(format.Piece(0, chunk));
  EXPECT_EQ(piece["choices"][0]["text"], "ab<i>");
  EXPECT_EQ(piece["choices"][0]["nacre"]["tokens"].size(), 4u);
  chunk.clear_text();
  EXPECT_NE(format.Piece(0, chunk), "") << "tokens whose text is held back";
  v1::Complete complete;
  EXPECT_FALSE(
      OrderedJson::parse(format.Last(0, complete))["choices"][0].contains(
          "nacre"));
  complete.add_trace();
  EXPECT_TRUE(
      OrderedJson::parse(format.Last(0, complete))["choices"][0].contains(
          "nacre"));
}

}  // namespace
}  // namespace nacre::gateway
