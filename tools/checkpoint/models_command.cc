#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/flag_set.h"
#include "kernels/backend_factory.h"
#include "kernels/weight_type.h"
#include "model/families.h"
#include "tools/commands.h"

namespace nacre::tools {

int ModelsCommand(const std::vector<std::string>& args,
                  const Terminal& terminal) {
  FlagSet flags("nacre models",
                "Prints which checkpoints this build reads: architectures of "
                "their config.json, and the backends of this build.");
  if (const auto code = terminal.ReadFlags(args, &flags)) return *code;
  size_t width = 0;
  for (const model::Family& family : model::AllFamilies()) {
    width = std::max(width, std::string(family.architecture).size());
  }
  const std::string backends = absl::StrJoin(kernels::CompiledBackends(), ", ");
  for (const model::Family& family : model::AllFamilies()) {
    std::string line = family.architecture;
    line.resize(width + 2, ' ');
    absl::StrAppend(&line, family.models, " (", backends, ")");
    terminal.out << line << "\n";
  }
  terminal.out
      << "\nWeights: safetensors or pytorch_model.bin in bf16, f16 or "
         "f32, one file or shards.\nQuantized: compressed-tensors "
         "(FP8, int8, packed int4 and int8), fp8 (blocks, AutoFP8), AWQ "
         "(gemm), GPTQ (4 and 8 bits).\nOf Llama, Mistral, Qwen2 and Qwen3 "
         "also GGUF files, one or in parts, in F32, F16, BF16, "
         "Q8_0,\nQ4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K or "
         "Q6_K.\n--weights, of workers: "
      << kernels::kWeightTypesHelp << std::endl;
  return kExitOk;
}

}  // namespace nacre::tools
