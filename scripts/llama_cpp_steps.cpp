// What a step of llama.cpp costs, of the same kind as bench_decode measures:
// rows of one session after a context, the logits of every row, rolled back
// after each step; the row counts take turns, as bench_decode's do. And a
// prompt, of which the last row has logits. For scripts/compare_llama_cpp.sh,
// which builds it beside libllama.
//
//   llama_cpp_steps MODEL.gguf THREADS CONTEXT ROWS,ROWS STEPS PROMPT PROMPTS
//   llama_cpp_steps quantize FROM.gguf TO.gguf q8_0|q4_0
//
// Everything else is llama.cpp's default: its types of keys and values, its
// repacking, its threads.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "llama_cpp_steps: error: %s\n", what.c_str());
  std::exit(1);
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Model {
 public:
  Model(const char* path, int threads, int context) {
    model_ = llama_model_load_from_file(path, llama_model_default_params());
    if (model_ == nullptr) Fail(std::string("cannot load ") + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = context;
    params.n_threads = params.n_threads_batch = threads;
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) Fail("no context");
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() {
    llama_free(context_);
    llama_model_free(model_);
  }

  // Seconds of `rows` rows from position `begin`, the last `logits` with
  // logits.
  double Run(int begin, int rows, int logits) {
    llama_batch batch = llama_batch_init(rows, 0, 1);
    batch.n_tokens = rows;
    for (int i = 0; i < rows; ++i) {
      batch.token[i] = static_cast<llama_token>((begin + i) * 7919 % vocab_);
      batch.pos[i] = begin + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = i >= rows - logits;
    }
    llama_memory_seq_rm(llama_get_memory(context_), 0, begin, -1);
    const double start = Seconds();
    if (llama_decode(context_, batch) != 0) Fail("llama_decode");
    llama_synchronize(context_);
    const double seconds = Seconds() - start;
    llama_batch_free(batch);
    return seconds;
  }

 private:
  llama_model* model_;
  llama_context* context_;
  int vocab_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

int Quantize(const char* from, const char* to, const std::string& type) {
  llama_model_quantize_params params = llama_model_quantize_default_params();
  if (type == "q8_0") {
    params.ftype = LLAMA_FTYPE_MOSTLY_Q8_0;
  } else if (type == "q4_0") {
    params.ftype = LLAMA_FTYPE_MOSTLY_Q4_0;
  } else {
    Fail(type + " is not q8_0 or q4_0");
  }
  params.pure = true;  // the head and the embedding, too
  return llama_model_quantize(from, to, &params) == 0 ? 0 : 1;
}

int Measure(char** argv) {
  const int threads = std::atoi(argv[2]);
  const int context = std::atoi(argv[3]);
  const int steps = std::atoi(argv[5]);
  const int prompt = std::atoi(argv[6]);
  const int prompts = std::atoi(argv[7]);
  std::vector<int> row_counts;
  std::stringstream list(argv[4]);
  for (std::string rows; std::getline(list, rows, ',');) {
    row_counts.push_back(std::atoi(rows.c_str()));
  }
  Model model(argv[1], threads, std::max(prompt, context + 64));
  std::vector<double> prompt_seconds;
  model.Run(0, prompt, 1);  // allocates
  for (int i = 0; i < prompts; ++i) {
    prompt_seconds.push_back(model.Run(0, prompt, 1));
  }
  model.Run(0, context, 1);
  std::vector<std::vector<double>> seconds(row_counts.size());
  for (const int rows : row_counts) model.Run(context, rows, rows);
  for (int step = 0; step < steps; ++step) {
    for (size_t c = 0; c < row_counts.size(); ++c) {
      seconds[c].push_back(model.Run(context, row_counts[c], row_counts[c]));
    }
  }
  std::printf("{\"system\": \"%s\",\n \"steps\": [", llama_print_system_info());
  for (size_t c = 0; c < row_counts.size(); ++c) {
    std::printf("%s\n  {\"rows\": %d, \"seconds\": %.9f}", c ? "," : "",
                row_counts[c], Median(seconds[c]));
  }
  std::printf("],\n \"prompt\": {\"rows\": %d, \"seconds\": %.9f}}\n", prompt,
              Median(prompt_seconds));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  llama_backend_init();
  if (argc == 5 && std::string(argv[1]) == "quantize") {
    return Quantize(argv[2], argv[3], argv[4]);
  }
  if (argc != 8) Fail("seven arguments, or quantize and three");
  return Measure(argv);
}
