// Which tensors a checkpoint of a model holds, by what they do in it: names of
// its family (families.h), shapes that its config implies. What reads,
// writes or invents weights asks here.
//
// Values and pure functions.

#ifndef MODEL_EXPECTED_TENSORS_H_
#define MODEL_EXPECTED_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace nacre::model {

enum class TensorRole {
  kEmbedding,
  kPositions,
  // Of a layer.
  kInputNorm,
  kInputNormBias,
  kQueryKeyValue,  // and its biases, or the three that follow, and theirs
  kQueryKeyValueBias,
  kQuery,
  kQueryBias,
  kKey,
  kKeyBias,
  kValue,
  kValueBias,
  kQueryNorm,
  kKeyNorm,
  kAttentionOutput,
  kAttentionOutputBias,
  kAttentionPostNorm,
  kMlpNorm,
  kMlpNormBias,
  kGateUp,  // or the two that follow
  kGate,
  kGateBias,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
  kMlpPostNorm,
  kRouter,  // and what follows, in place of gate, up and down
  kExpertGate,
  kExpertUp,
  kExpertDown,
  // After the layers.
  kFinalNorm,
  kFinalNormBias,
  kHead,
};

struct ExpectedTensor {
  TensorRole role;
  std::string name;
  std::vector<int64_t> shape;
  int expert = 0;  // of roles that each expert has
};

class ExpectedTensors {
 public:
  // Of layer `index`, in the order of TensorRole.
  static ExpectedTensors OfLayer(const ModelConfig& config, int index);
  // Of what is in no layer: the embedding, learned positions, the last norm,
  // and the head unless it is tied to the embedding.
  static ExpectedTensors OutsideLayers(const ModelConfig& config);
  // The head, also where it is tied: what it would be.
  static ExpectedTensor UntiedHead(const ModelConfig& config);

  // Fatal where the model has none.
  const ExpectedTensor& operator[](TensorRole role) const;
  const ExpectedTensor& OfExpert(TensorRole role, int expert) const;
  bool Has(TensorRole role) const;

  std::vector<ExpectedTensor>::const_iterator begin() const {
    return tensors_.begin();
  }
  std::vector<ExpectedTensor>::const_iterator end() const {
    return tensors_.end();
  }

 private:
  // `name` lacks ".weight".
  void Add(TensorRole role, const std::string& name, std::vector<int64_t> shape,
           int expert = 0);
  // And the biases of what it makes, one for each of its rows.
  void AddWithBias(TensorRole role, TensorRole bias, bool has_bias,
                   const std::string& name, std::vector<int64_t> shape);
  void AddAttention(const ModelConfig& config, const std::string& prefix);
  void AddFeedForward(const ModelConfig& config, const std::string& prefix);
  void AddExperts(const ModelConfig& config, const std::string& prefix);

  std::vector<ExpectedTensor> tensors_;
};

// What the names of a layer's tensors begin with.
std::string LayerPrefix(const ModelConfig& config, int index);

}  // namespace nacre::model

#endif  // MODEL_EXPECTED_TENSORS_H_
