// The rows of queries, keys and values: from where checkpoints have them to
// where the forward wants them.
//
// Pure functions and constant values.

#ifndef MODEL_QKV_ROWS_H_
#define MODEL_QKV_ROWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/product_ops.h"
#include "model/config.h"

namespace nacre::model {

// Where the elements of a head come from. With h = head_dim / 2 and r pairs
// that turn, elements j and j + r of the checkpoint become j and j + h.
class HeadOrder {
 public:
  explicit HeadOrder(const ModelConfig& config);

  bool is_same() const { return is_same_; }  // Apply changes nothing
  // Of each head's rows; `storage` holds what *matrix points to then.
  void Apply(kernels::HostMatrix* matrix, std::string* storage) const;
  // Of the first `count` values: heads one after another.
  void Apply(int count, std::vector<float>* values) const;

 private:
  // Where element `row` of heads one after another comes from.
  int From(int row) const;

  std::vector<size_t> from_;
  bool is_same_ = true;
};

// The queries, the keys and the values of the tensor that holds them all, in
// the config's layout. `storage` [3] holds what the result points to then.
std::vector<kernels::HostMatrix> SeparateQkv(const ModelConfig& config,
                                             const kernels::HostMatrix& all,
                                             std::string* storage);

// Of that tensor's biases: the queries', then the keys', then the values'.
void SeparateQkv(const ModelConfig& config, std::vector<float>* biases);

}  // namespace nacre::model

#endif  // MODEL_QKV_ROWS_H_
