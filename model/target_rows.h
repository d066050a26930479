// Keys and values of a text out of the cache of the model that has computed
// them, as a draft elsewhere reads them.
//
// The model's thread.

#ifndef MODEL_TARGET_ROWS_H_
#define MODEL_TARGET_ROWS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/language_model.h"

namespace nacre::model {

class RowSource {
 public:
  virtual ~RowSource() = default;
  // Whether a draft that reads such rows can read them here. INVALID_ARGUMENT
  // with both numbers where they are of another shape; UNIMPLEMENTED for a
  // model that shows no keys, or keeps parts of heads apart.
  virtual absl::Status Check(const TargetRowShape& shape) const = 0;
  // Whether the target keeps them in bf16: they lose nothing as such.
  virtual bool is_bf16() const { return false; }
  // Of a shape that was checked: positions first..first+count-1, all below
  // sequence.length(). Of a device it waits for it, and they are good if its
  // Synchronize says so.                     rows [count, shape.row_size()]
  virtual void Read(const Sequence& sequence, const TargetRowShape& shape,
                    int first, int count, std::vector<float>* rows) = 0;
};

class KeptRows final : public RowSource {
 public:
  explicit KeptRows(LanguageModel* model);  // outlives it
  ~KeptRows() override;

  absl::Status Check(const TargetRowShape& shape) const override;
  bool is_bf16() const override;
  void Read(const Sequence& sequence, const TargetRowShape& shape, int first,
            int count, std::vector<float>* rows) override;

 private:
  class DeviceBlocks;

  LanguageModel* const model_;
  std::unique_ptr<DeviceBlocks> device_;  // null: the model's is the host
};

}  // namespace nacre::model

#endif  // MODEL_TARGET_ROWS_H_
