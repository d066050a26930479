#include "tests/integration/hostile_clients.h"

#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/inference.grpc.pb.h"
#include "tests/testing/raw_call.h"

namespace nacre::integration {
namespace {

using ::nacre::testing::LoopbackConnection;

constexpr char kGenerate[] = "/nacre.v1.Inference/Generate";
// Below --max-request-bytes, with room for the other fields.
constexpr size_t kPromptBytes = (16 << 20) - 4096;
constexpr size_t kBombBytes = 15 << 20;
// Of a call.
constexpr absl::Duration kPatience = absl::Seconds(20);

void Authorize(const std::string& token, grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  if (!token.empty()) {
    context->AddMetadata("authorization", "Bearer " + token);
  }
}

// "a1a1a1...": each two bytes are a word of most tokenizers.
const std::string& LongText() {
  static const auto& text = *new std::string([] {
    std::string words;
    words.reserve(kPromptBytes);
    while (words.size() < kPromptBytes) words += "a1";
    return words;
  }());
  return text;
}

grpc::Status Generate(const Prey& prey, const std::string& token,
                      const v1::GenerateRequest& request) {
  const auto stub = v1::Inference::NewStub(rpc::CreateChannel(prey.clients));
  grpc::ClientContext context;
  Authorize(token, &context);
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  return reader->Finish();
}

// What a client gets that is too large or has no token, under load: never an
// answer, and no error without a reason. Among thousands of connections some do
// not come about in time.
void ExpectRefused(const grpc::Status& status) {
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ||
              status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
              status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
              status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
              status.error_code() == grpc::StatusCode::UNAVAILABLE)
      << status.error_code() << ": " << status.error_message();
}

// A channel of which the server can send little before it is read.
std::unique_ptr<v1::Inference::Stub> StubWithSmallWindow(const Prey& prey) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4096);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::Inference::NewStub(grpc::CreateCustomChannel(
      prey.clients, grpc::InsecureChannelCredentials(), arguments));
}

v1::GenerateRequest StreamedRequest(uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_text("def add(a, b):");
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_stream(true);
  return request;
}

// ---------------------------------------------------------- protobuf's bytes

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<char>(value | 0x80));
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// A field of a message or a string.
std::string Field(int number, absl::string_view content) {
  return absl::StrCat(Varint(static_cast<uint64_t>(number) << 3 | 2),
                      Varint(content.size()), content);
}

std::string Repeated(absl::string_view bytes, size_t size) {
  std::string all;
  all.reserve(size + bytes.size());
  while (all.size() < size) all.append(bytes.data(), bytes.size());
  return all;
}

// A request that begins well and has millions of entries in one field.
std::string Bomb(int round) {
  const std::string prompt = Field(3, "def add(a, b):");
  switch (round % 4) {
    case 0:  // StopParams.stop, each ""
      return prompt + Field(6, Repeated(Field(2, ""), kBombBytes));
    case 1:  // StopParams.stop_token_ids
      return prompt + Field(6, Field(3, Repeated("\x01", kBombBytes)));
    case 2:  // SpeculationOptions.oracle_token_ids
      return prompt + Field(8, Field(5, Repeated("\x01", kBombBytes)));
    default:  // token_ids
      return Field(4, Field(1, Repeated("\x05", kBombBytes)));
  }
}

// ------------------------------------------------------------- HTTP/2's bytes

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : char {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8
};
constexpr char kEndStream = 1;
constexpr char kAcknowledged = 1;  // of settings and pings
constexpr char kEndHeaders = 4;
constexpr size_t kFrameHead = 9;
constexpr int64_t kMostInAFrame = 16384;

std::string Frame(FrameType type, char flags, uint32_t stream,
                  absl::string_view payload) {
  std::string bytes;
  for (int shift = 16; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(payload.size() >> shift));
  }
  bytes.push_back(type);
  bytes.push_back(flags);
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(stream >> shift));
  }
  return absl::StrCat(bytes, payload);
}

// A header that no table knows, shorter than 127 bytes.
std::string Header(absl::string_view name, absl::string_view value) {
  return absl::StrCat(std::string(1, '\0'),
                      std::string(1, static_cast<char>(name.size())), name,
                      std::string(1, static_cast<char>(value.size())), value);
}

std::string Greeting() {
  return absl::StrCat(kPreface, Frame(kSettings, 0, 0, ""));
}

// The beginning of a call, up to its first message.
std::string CallHeaders(const Prey& prey, uint32_t stream) {
  return Frame(
      kHeaders, kEndHeaders, stream,
      absl::StrCat(Header(":method", "POST"), Header(":scheme", "http"),
                   Header(":path", kGenerate), Header(":authority", "x"),
                   Header("te", "trailers"),
                   Header("content-type", "application/grpc"),
                   Header("authorization", "Bearer " + prey.token)));
}

// Five bytes before a gRPC message: not compressed, and its length.
std::string MessagePrefix(uint32_t length) {
  std::string bytes(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(length >> shift));
  }
  return bytes;
}

// What ends too early or makes no sense, in many ways.
std::string HalfMessage(const Prey& prey, int i) {
  const std::string begun = Greeting() + CallHeaders(prey, 1);
  switch (i % 8) {
    case 0:
      return std::string(kPreface).substr(0, 11);
    case 1:  // of a frame's head
      return Greeting() + CallHeaders(prey, 1).substr(0, 5);
    case 2:  // of the headers
      return Greeting() + CallHeaders(prey, 1).substr(0, 40);
    case 3:  // headers that go on in a frame that never comes
      return Greeting() + Frame(kHeaders, 0, 1, Header(":method", "POST"));
    case 4:  // of a message's head
      return begun + Frame(kData, 0, 1, MessagePrefix(100).substr(0, 3));
    case 5:  // of a message
      return begun + Frame(kData, 0, 1, MessagePrefix(16 << 20) + "\x1a\x64");
    case 6:  // of a message that is too long
      return begun + Frame(kData, 0, 1, MessagePrefix(0xffffffff) + "abc");
    default: {  // of many at once
      std::string all = Greeting();
      for (uint32_t stream = 1; stream < 60; stream += 2) {
        absl::StrAppend(&all, CallHeaders(prey, stream),
                        Frame(kData, 0, stream, MessagePrefix(1 << 20) + "a"));
      }
      return all;
    }
  }
}

uint32_t Number(absl::string_view bytes) {
  uint32_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}

// Calls on one connection that end before their messages do.
class HalfSender {
 public:
  HalfSender(const Prey& prey, uint32_t num_calls, uint32_t bytes_each)
      : connection_(prey.clients, absl::Seconds(1)) {
    std::string beginning = Greeting();
    for (uint32_t i = 0; i < num_calls; ++i) {
      const uint32_t stream = 2 * i + 1;
      absl::StrAppend(&beginning, CallHeaders(prey, stream));
      absl::StrAppend(&beginning,
                      Frame(kData, 0, stream, MessagePrefix(bytes_each)));
      unsent_[stream] = bytes_each - 1;
      windows_[stream] = kInitialWindow - kMessageHead;
      window_ -= kMessageHead;
    }
    connection_.Send(beginning);
  }

  // Sends what the server takes now, hears what it says. False: nothing more
  // may come of it.
  bool Go() {
    for (auto& [stream, bytes] : unsent_) {
      while (SendSome(stream, &bytes)) {
      }
    }
    const std::string said = connection_.Read();
    unheard_ += said;
    while (HearFrame()) {
    }
    return !unsent_.empty() && !(said.empty() && connection_.Ended());
  }

 private:
  static constexpr int64_t kInitialWindow = 65535;
  static constexpr int64_t kMessageHead = 5;

  bool SendSome(uint32_t stream, int64_t* bytes) {
    const int64_t count =
        std::min({kMostInAFrame, window_, windows_[stream], *bytes});
    if (count <= 0 ||
        !connection_.Send(Frame(
            kData, 0, stream, std::string(static_cast<size_t>(count), 'x')))) {
      return false;
    }
    window_ -= count;
    windows_[stream] -= count;
    *bytes -= count;
    return true;
  }

  bool HearFrame() {
    if (unheard_.size() < kFrameHead) return false;
    const absl::string_view all = unheard_;
    const size_t size = Number(all.substr(0, 3));
    if (all.size() < kFrameHead + size) return false;
    const uint32_t stream = Number(all.substr(5, 4));
    const absl::string_view payload = all.substr(kFrameHead, size);
    const bool ends = (all[4] & kEndStream) != 0;
    switch (all[3]) {
      case kWindowUpdate:
        (stream == 0 ? window_ : windows_[stream]) += Number(payload);
        break;
      case kReset:
        unsent_.erase(stream);
        break;
      case kHeaders:
        if (ends) unsent_.erase(stream);
        break;
      case kSettings:
        if (!ends) connection_.Send(Frame(kSettings, kAcknowledged, 0, ""));
        break;
      case kPing:
        if (!ends) connection_.Send(Frame(kPing, kAcknowledged, 0, payload));
        break;
      default:
        break;
    }
    unheard_.erase(0, kFrameHead + size);
    return true;
  }

  LoopbackConnection connection_;
  std::string unheard_;
  int64_t window_ = kInitialWindow;
  std::map<uint32_t, int64_t> windows_;
  std::map<uint32_t, int64_t> unsent_;
};

}  // namespace

void SendOversizedPrompts(const Prey& prey, int round) {
  if (round % 2 == 0) {
    v1::GenerateRequest request;
    request.set_text(LongText());
    ExpectRefused(Generate(prey, prey.token, request));
    return;
  }
  const auto stub = v1::Inference::NewStub(rpc::CreateChannel(prey.clients));
  grpc::ClientContext context;
  Authorize(prey.token, &context);
  v1::TokenizeRequest request;
  request.set_text(LongText());
  v1::TokenizeResponse response;
  ExpectRefused(stub->Tokenize(&context, request, &response));
}

void SendWithoutToken(const Prey& prey, int round) {
  v1::GenerateRequest request;
  request.set_text(LongText());
  ExpectRefused(
      Generate(prey, round % 2 == 0 ? "" : "wrong-0123456789abcdef", request));
}

void SendBombs(const Prey& prey, int round) {
  std::map<std::string, std::string> metadata;
  if (round % 8 < 4) metadata["authorization"] = "Bearer " + prey.token;
  ExpectRefused(nacre::testing::CallWithBytes(
      rpc::CreateChannel(prey.clients), kGenerate, Bomb(round), metadata));
}

void LeaveAnswersUnread(const Prey& prey, const absl::Notification& over) {
  const auto stub = StubWithSmallWindow(prey);
  // Few tokens, so that the session ends before anything has to be read, with
  // an answer that does not fit the window, and a request that is not small.
  v1::GenerateRequest request = StreamedRequest(16);
  request.mutable_output()->set_logprobs(20);
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(
      1000, std::string(1 << 20, 'x'));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> calls;
  for (int i = 0; i < 8; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    Authorize(prey.token, contexts.back().get());
    calls.push_back(stub->Generate(contexts.back().get(), request));
  }
  over.WaitForNotificationWithTimeout(absl::Seconds(15));
  for (size_t i = 0; i < calls.size(); ++i) {
    contexts[i]->TryCancel();
    v1::GenerateResponse response;
    while (calls[i]->Read(&response)) {
    }
    calls[i]->Finish();
  }
}

void ReadSlowly(const Prey& prey, const absl::Notification& over) {
  const auto stub = StubWithSmallWindow(prey);
  grpc::ClientContext context;
  Authorize(prey.token, &context);
  const auto reader = stub->Generate(&context, StreamedRequest(400));
  v1::GenerateResponse response;
  while (reader->Read(&response) &&
         !over.WaitForNotificationWithTimeout(absl::Milliseconds(50))) {
  }
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  reader->Finish();
}

void SendHalfMessages(const Prey& prey, const absl::Notification& over) {
  std::vector<LoopbackConnection> connections;
  for (int i = 0; i < 64; ++i) {
    const std::string& address =
        i % 16 == 8 ? prey.registry
                    : (i % 16 == 9 ? prey.operators : prey.clients);
    LoopbackConnection& connection =
        connections.emplace_back(address, absl::Seconds(1));
    connection.Send(HalfMessage(prey, i));
    if (i % 3 == 0) connection.HalfClose();
    if (i % 3 == 1) connection.ResetAtEnd();
  }
  over.WaitForNotificationWithTimeout(absl::Milliseconds(500));
}

void SendLargeHalves(const Prey& prey, const absl::Notification& over) {
  HalfSender sender(prey, /*num_calls=*/40, /*bytes_each=*/15 << 20);
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!over.HasBeenNotified() && absl::Now() < deadline && sender.Go()) {
  }
  over.WaitForNotificationWithTimeout(absl::Seconds(1));
}

LoopbackConnection IdleConnections::Open(size_t i) const {
  // A few at the ports where few are served at once.
  const std::string& address =
      i % 64 == 0
          ? prey_.metrics
          : (i % 64 == 1 ? prey_.registry
                         : (i % 64 == 2 ? prey_.operators : prey_.clients));
  LoopbackConnection connection(address, absl::Seconds(1));
  if (i % 64 == 0) {
    connection.Send(i % 128 == 0 ? "" : "GET /live");
  } else if (i % 2 == 0) {
    connection.Send(Greeting());
  }
  return connection;
}

void IdleConnections::Round(const absl::Notification& over) {
  for (size_t i = 0; i < count_ && !over.HasBeenNotified(); ++i) {
    if (i >= connections_.size()) {
      connections_.push_back(Open(i));
    } else if (connections_[i].Ended()) {
      connections_[i] = Open(i);
    }
  }
  over.WaitForNotificationWithTimeout(absl::Seconds(1));
}

}  // namespace nacre::integration
