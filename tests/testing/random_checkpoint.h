// Random Hugging Face folders of any family, made from a config.json alone.
// tests/data/model/make_option_goldens.py makes the same weights, bit for bit,
// so that goldens need no checkpoint beside them.
//
// Thread-safe: pure functions on distinct folders.

#ifndef TESTS_TESTING_RANDOM_CHECKPOINT_H_
#define TESTS_TESTING_RANDOM_CHECKPOINT_H_

#include <string>

namespace nacre::testing {

// Writes `config_json` and model.safetensors, in float32, into `dir`. A
// tensor's values follow from its name and shape: Philox4x32-10 of the counter
// {element, 0, 0, 0} under the key {FNV-1a of the name, 9}, whose first word
// makes u in [-1, 1); then 1 + 0.3 u for weights of norms, 0.5 u for biases,
// sqrt(3 / columns) u for matrices.
void WriteRandomCheckpoint(const std::string& config_json,
                           const std::string& dir);

}  // namespace nacre::testing

#endif  // TESTS_TESTING_RANDOM_CHECKPOINT_H_
