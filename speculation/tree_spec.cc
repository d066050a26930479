#include "speculation/tree_spec.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace nacre::speculation {
namespace {

constexpr std::array<absl::string_view, 5> kNames = {"chain", "best", "cape",
                                                     "eagle2", "static"};

std::string Shown(absl::string_view text) {
  return absl::CHexEscape(text.substr(0, 64));
}

// Whether a number is written as TreeSpecName writes it: without a sign, space
// or zeros in front, which SimpleAtoi allows.
bool IsDecimal(absl::string_view text) {
  return !text.empty() && text[0] != '0' &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Reads "[[0], [0, 1]]": lists of ranks, with white space anywhere between.
class PathListReader {
 public:
  explicit PathListReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<std::vector<int>>> Read() {
    std::vector<std::vector<int>> paths;
    NACRE_RETURN_IF_ERROR(Expect('['));
    while (true) {
      std::vector<int> path;
      NACRE_RETURN_IF_ERROR(ReadPath(&path));
      if (paths.size() == static_cast<size_t>(kMaxShapeNodes)) {
        return Refuse(absl::StrCat("there are more than ", kMaxShapeNodes,
                                   " paths, the most"));
      }
      paths.push_back(std::move(path));
      if (!Take(',')) break;
    }
    NACRE_RETURN_IF_ERROR(Expect(']'));
    SkipSpace();
    if (at_ != text_.size()) return Refuse("something follows the list");
    return paths;
  }

 private:
  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("tree static: byte ", at_, ": ", why));
  }

  void SkipSpace() {
    while (at_ < text_.size() &&
           absl::StrContains(" \t\r\n", text_.substr(at_, 1))) {
      ++at_;
    }
  }

  bool Take(char wanted) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char wanted) {
    if (Take(wanted)) return absl::OkStatus();
    return Refuse(absl::StrCat("'", std::string(1, wanted), "' is missing"));
  }

  absl::Status ReadPath(std::vector<int>* path) {
    NACRE_RETURN_IF_ERROR(Expect('['));
    do {
      SkipSpace();
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        ++at_;
      }
      const absl::string_view digits = text_.substr(begin, at_ - begin);
      int rank = 0;
      if ((digits != "0" && !IsDecimal(digits)) ||
          !absl::SimpleAtoi(digits, &rank) || rank >= kMaxShapeWidth) {
        return Refuse(absl::StrCat("rank \"", Shown(digits),
                                   "\" is no number from 0 to ",
                                   kMaxShapeWidth - 1));
      }
      if (path->size() == static_cast<size_t>(kMaxShapeDepth)) {
        return Refuse(absl::StrCat("a path has more than ", kMaxShapeDepth,
                                   " ranks, the most"));
      }
      path->push_back(rank);
    } while (Take(','));
    return Expect(']');
  }

  absl::string_view text_;
  size_t at_ = 0;
};

absl::Status ParseStatic(absl::string_view text, TreeSpec* spec) {
  NACRE_ASSIGN_OR_RETURN(std::vector<std::vector<int>> paths,
                         PathListReader(text).Read());
  // A path comes after those that it goes on from.
  std::sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  for (const std::vector<int>& path : paths) {
    const auto shown = [&path] {
      std::string list;
      for (const int rank : path) {
        absl::StrAppend(&list, list.empty() ? "[" : ",", rank);
      }
      return list + "]";
    };
    const absl::optional<int> parent =
        FindStaticNode(*spec, absl::MakeConstSpan(path).first(path.size() - 1));
    if (!parent.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree static: path ", shown(),
                       " goes on from one that the list does not have"));
    }
    if (HasStaticChild(*spec, *parent, path.back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree static: path ", shown(), " is given twice"));
    }
    spec->nodes.push_back({*parent, path.back()});
  }
  return absl::OkStatus();
}

absl::Status ParseEagle2(absl::string_view text, TreeSpec* spec) {
  struct Parameter {
    absl::string_view name;
    int* value;
    int most;
    bool given = false;
  };
  std::array<Parameter, 3> all = {
      Parameter{"k", &spec->width, kMaxShapeWidth},
      Parameter{"depth", &spec->depth, kMaxShapeDepth},
      Parameter{"total", &spec->total, kMaxShapeNodes}};
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> given =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto it = std::find_if(
        all.begin(), all.end(),
        [&given](const Parameter& each) { return each.name == given.first; });
    if (it == all.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree eagle2: \"", Shown(part),
                       "\" is no parameter; there are k=, depth= and total="));
    }
    if (std::exchange(it->given, true)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree eagle2: ", it->name, " is given twice"));
    }
    if (!IsDecimal(given.second) ||
        !absl::SimpleAtoi(given.second, it->value) || *it->value < 1 ||
        *it->value > it->most) {
      return absl::InvalidArgumentError(
          absl::StrCat("tree eagle2: ", it->name, " \"", Shown(given.second),
                       "\" is no number from 1 to ", it->most));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string TreeSpecName(const TreeSpec& spec) {
  std::string name(kNames[static_cast<size_t>(spec.shape)]);
  if (spec.shape == TreeShape::kEagle2) {
    absl::StrAppend(&name, ":k=", spec.width, ",depth=", spec.depth,
                    ",total=", spec.total);
  }
  if (spec.shape != TreeShape::kStatic) return name;
  std::vector<std::string> paths;
  for (const TreeSpec::Node& node : spec.nodes) {
    paths.push_back(node.parent < 0
                        ? absl::StrCat(node.rank)
                        : absl::StrCat(paths[static_cast<size_t>(node.parent)],
                                       ",", node.rank));
  }
  char before = '[';
  absl::StrAppend(&name, ":");
  for (const std::string& path : paths) {
    absl::StrAppend(&name, std::string(1, before), "[", path, "]");
    before = ',';
  }
  return name + "]";
}

absl::StatusOr<TreeSpec> ParseTreeSpec(absl::string_view name) {
  if (name.size() > static_cast<size_t>(kMaxShapeText)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree of ", name.size(), " bytes, over ", kMaxShapeText));
  }
  const size_t colon = name.find(':');
  const bool has_text = colon != absl::string_view::npos;
  const absl::string_view text =
      has_text ? name.substr(colon + 1) : absl::string_view();
  const auto it =
      std::find(kNames.begin(), kNames.end(), name.substr(0, colon));
  TreeSpec spec;
  if (it != kNames.end()) {
    spec.shape = static_cast<TreeShape>(it - kNames.begin());
  }
  const bool may_have =
      spec.shape == TreeShape::kEagle2 || spec.shape == TreeShape::kStatic;
  if (it == kNames.end() || (has_text && !may_have) ||
      (!has_text && spec.shape == TreeShape::kStatic)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tree \"", Shown(name), "\" is unknown; there are chain, best, cape, ",
        "eagle2:k=K,depth=D,total=N and static: with a list of paths"));
  }
  if (spec.shape == TreeShape::kStatic) {
    NACRE_RETURN_IF_ERROR(ParseStatic(text, &spec));
  } else if (has_text) {
    NACRE_RETURN_IF_ERROR(ParseEagle2(text, &spec));
  }
  return spec;
}

int CapeWidth(double q) {
  constexpr std::array<int, 10> kWidths = {8, 8, 8, 6, 6, 6, 4, 4, 2, 2};
  // Written so that a NaN is unlikely.
  return q > 0 ? kWidths[static_cast<size_t>(std::min(q * 10, 9.0))]
               : kWidths[0];
}

absl::optional<int> FindStaticNode(const TreeSpec& spec,
                                   absl::Span<const int> ranks) {
  int node = -1;
  for (const int rank : ranks) {
    const auto it = std::find(spec.nodes.begin(), spec.nodes.end(),
                              TreeSpec::Node{node, rank});
    if (it == spec.nodes.end()) return absl::nullopt;
    node = static_cast<int>(it - spec.nodes.begin());
  }
  return node;
}

bool HasStaticChild(const TreeSpec& spec, int node) {
  return std::any_of(
      spec.nodes.begin(), spec.nodes.end(),
      [node](const TreeSpec::Node& each) { return each.parent == node; });
}

bool HasStaticChild(const TreeSpec& spec, int node, int rank) {
  return std::find(spec.nodes.begin(), spec.nodes.end(),
                   TreeSpec::Node{node, rank}) != spec.nodes.end();
}

int ShapeDepth(const TreeSpec& spec) {
  if (spec.shape == TreeShape::kEagle2) return spec.depth;
  if (spec.shape != TreeShape::kStatic) return kMaxShapeDepth;
  std::vector<int> depths;
  for (const TreeSpec::Node& node : spec.nodes) {
    depths.push_back(
        node.parent < 0 ? 1 : depths[static_cast<size_t>(node.parent)] + 1);
  }
  return depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
}

int LikeliestDepth(const TreeSpec& spec) {
  if (spec.shape != TreeShape::kStatic) return ShapeDepth(spec);
  std::vector<int> ranks = {0};
  while (FindStaticNode(spec, ranks).has_value()) ranks.push_back(0);
  return static_cast<int>(ranks.size()) - 1;
}

}  // namespace nacre::speculation
