// The samples of metrics, as Prometheus would store them.

#ifndef TESTS_TELEMETRY_SAMPLES_H_
#define TESTS_TELEMETRY_SAMPLES_H_

#include <prometheus/collectable.h>
#include <prometheus/text_serializer.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace nacre::telemetry {

// `name{labels}` as written to value.
using Samples = std::map<std::string, double>;

inline Samples ParseSamples(const std::string& text) {
  Samples samples;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t space = line.rfind(' ');
    if (line.rfind("nacre_", 0) != 0 || space == std::string::npos) continue;
    samples[line.substr(0, space)] = std::atof(line.c_str() + space);
  }
  return samples;
}

inline Samples Collect(const prometheus::Collectable& source) {
  return ParseSamples(
      prometheus::TextSerializer().prometheus::Serializer::Serialize(
          source.Collect()));
}

// The sum over all samples of the metric `name` whose labels hold `part`; -1
// when there is none.
inline double Sum(const Samples& samples, const std::string& name,
                  const std::string& part = "") {
  double sum = 0;
  bool found = false;
  for (const auto& [sample, value] : samples) {
    if (sample.substr(0, sample.find('{')) == name &&
        sample.find(part) != std::string::npos) {
      sum += value;
      found = true;
    }
  }
  return found ? sum : -1;
}

}  // namespace nacre::telemetry

#endif  // TESTS_TELEMETRY_SAMPLES_H_
