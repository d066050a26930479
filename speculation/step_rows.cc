#include "speculation/step_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace nacre::speculation {
namespace {

// The lowest number of rows within this factor of the best rate is taken: step
// times are known less well, and every row costs power.
constexpr double kGoodRate = 0.995;

struct Candidate {
  float score = 0;  // log2 of pi, times what its tokens are worth
  int tree = 0;
};

// The nodes that may be rows, the likeliest first.
std::vector<Candidate> Candidates(absl::Span<const StepTree> trees) {
  std::vector<Candidate> candidates;
  std::vector<int> nodes;
  for (size_t i = 0; i < trees.size(); ++i) {
    const StepTree& each = trees[i];
    if (each.takes_all) continue;
    each.Likeliest(kMaxWindow, &nodes);
    const float worth = static_cast<float>(std::log2(each.worth));
    for (const int node : nodes) {
      candidates.push_back(
          {each.tree->nodes()[node].path_score + worth, static_cast<int>(i)});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  return candidates;
}

// The time of `rows` rows and of each number up to `count` more. Fewer rows
// cost no more than more do: where they seem to, a measurement was disturbed.
std::vector<double> Times(const StepTimeCurve& curve, int rows, size_t count) {
  std::vector<double> times(count + 1);
  for (size_t i = count + 1; i-- > 0;) {
    const double time = curve.At(rows + static_cast<int>(i));
    times[i] = i == count ? time : std::min(time, times[i + 1]);
  }
  return times;
}

// The rows of the trees that ask for no price.
void TakeAll(absl::Span<const StepTree> trees, StepLoad* load,
             std::vector<int>* counts) {
  std::vector<int> nodes;
  for (size_t i = 0; i < trees.size(); ++i) {
    if (!trees[i].takes_all || load->rows >= load->max_rows) continue;
    trees[i].Likeliest(load->max_rows - load->rows, &nodes);
    (*counts)[i] = static_cast<int>(nodes.size());
    load->rows += (*counts)[i];
  }
}

}  // namespace

void StepTree::Likeliest(int count, std::vector<int>* nodes) const {
  tree->Best(std::min(count, most), max_depth, nodes);
  // Fewer than `most` are all that there are.
  if (!path_goes_on || count <= most ||
      static_cast<int>(nodes->size()) < most) {
    return;
  }
  std::vector<int> path;
  tree->BestPath(&path);
  path.resize(std::min(path.size(), static_cast<size_t>(max_depth)));
  const size_t all = static_cast<size_t>(std::min(count, kMaxWindow));
  // What they have of it is its beginning.
  const size_t chosen = nodes->size();
  for (const int node : path) {
    if (nodes->size() >= all) break;
    if (!std::binary_search(nodes->begin(), nodes->begin() + chosen, node)) {
      nodes->push_back(node);
    }
  }
  std::sort(nodes->begin(), nodes->end());
}

std::vector<int> ChooseStepRows(absl::Span<const StepTree> trees,
                                const StepLoad& given,
                                const StepTimeCurve& times) {
  std::vector<int> counts(trees.size(), 0);
  if (trees.empty()) return counts;
  StepLoad load = given;
  TakeAll(trees, &load, &counts);
  const int max_rows = std::min(load.max_rows, 2 * times.most_rows());
  if (max_rows <= load.rows) return counts;
  std::vector<Candidate> candidates = Candidates(trees);
  const size_t room = static_cast<size_t>(max_rows - load.rows);
  if (candidates.size() > room) candidates.resize(room);

  const std::vector<double> step_times =
      Times(times, load.rows, candidates.size());
  std::vector<double> rates;
  double tokens = load.sessions;
  rates.push_back(tokens / step_times[0]);
  for (size_t i = 0; i < candidates.size(); ++i) {
    tokens += std::exp2(candidates[i].score);
    rates.push_back(tokens / step_times[i + 1]);
  }
  const double good = kGoodRate * *std::max_element(rates.begin(), rates.end());
  size_t count = 0;
  while (rates[count] < good) ++count;
  for (size_t i = 0; i < count; ++i) ++counts[candidates[i].tree];
  return counts;
}

double CostOfRows(int sessions, int rows, int count,
                  const StepTimeCurve& times) {
  const double more = times.At(rows) / times.At(rows - count) - 1;
  return sessions * std::max(0.0, more);
}

}  // namespace nacre::speculation
