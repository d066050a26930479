#include "model/pickle/pickle.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json_fields.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

// Far above any file of tensors; they bound what a hostile one takes.
constexpr size_t kMaxValues = size_t{1} << 21;
constexpr size_t kMaxDepth = size_t{1} << 20;  // of the stack

using Kind = PickleValue::Kind;

std::string ShownText(absl::string_view text) {
  return JsonText(Json(std::string(text.substr(0, 120))));
}

}  // namespace

class PickleReader {
 public:
  PickleReader(absl::string_view bytes,
               absl::Span<const absl::string_view> globals, Pickle* pickle)
      : rest_(bytes), globals_(globals), pickle_(pickle) {}

  absl::Status Run() {
    while (pickle_->root_ == nullptr) {
      if (pickle_->values_.size() > kMaxValues || memo_.size() > kMaxValues ||
          stack_.size() > kMaxDepth) {
        return Bad("it builds more than any file of tensors");
      }
      NACRE_ASSIGN_OR_RETURN(const uint8_t code, Number<uint8_t>());
      NACRE_RETURN_IF_ERROR(Step(code));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Bad(absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a pickle that can be read: ", what));
  }

  absl::StatusOr<absl::string_view> Take(uint64_t count) {
    if (count > rest_.size()) return Bad("it ends early");
    const absl::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  absl::StatusOr<T> Number() {
    NACRE_ASSIGN_OR_RETURN(const absl::string_view bytes, Take(sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  absl::StatusOr<absl::string_view> Line() {
    const size_t end = rest_.find('\n');
    if (end == absl::string_view::npos) return Bad("it ends early");
    NACRE_ASSIGN_OR_RETURN(const absl::string_view line, Take(end + 1));
    return line.substr(0, end);
  }

  PickleValue* Push(Kind kind) {
    pickle_->values_.emplace_back();
    PickleValue* const value = &pickle_->values_.back();
    value->kind = kind;
    stack_.push_back(value);
    return value;
  }
  absl::StatusOr<PickleValue*> Pop() {
    const size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= bottom) return Bad("it takes what is not there");
    PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  // What was pushed since the last mark.
  absl::StatusOr<std::vector<const PickleValue*>> PopMarked() {
    if (marks_.empty()) return Bad("a mark is missing");
    std::vector<const PickleValue*> values(
        stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }

  absl::Status Text(uint64_t size) {
    NACRE_ASSIGN_OR_RETURN(const absl::string_view text, Take(size));
    Push(Kind::kText)->text = text;
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status TextOf() {
    NACRE_ASSIGN_OR_RETURN(const T size, Number<T>());
    return Text(size);
  }
  template <typename T>
  absl::Status NumberOf() {
    NACRE_ASSIGN_OR_RETURN(const T number, Number<T>());
    Push(Kind::kNumber)->number = number;
    return absl::OkStatus();
  }
  // Two's complement of as many bytes as the first says.
  absl::Status Long() {
    NACRE_ASSIGN_OR_RETURN(const uint8_t size, Number<uint8_t>());
    NACRE_ASSIGN_OR_RETURN(const absl::string_view bytes, Take(size));
    if (size > 8) return Bad("a number has more than 64 bits");
    const bool is_negative =
        size > 0 && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
    int64_t number = is_negative ? -1 : 0;
    std::memcpy(&number, bytes.data(), size);
    Push(Kind::kNumber)->number = number;
    return absl::OkStatus();
  }

  // Of the last `count`.
  absl::Status Tuple(int count) {
    std::vector<const PickleValue*> items;
    for (int i = 0; i < count; ++i) {
      NACRE_ASSIGN_OR_RETURN(items.emplace_back(), Pop());
    }
    std::reverse(items.begin(), items.end());
    Push(Kind::kSequence)->items = std::move(items);
    return absl::OkStatus();
  }
  // Adds to what lies under them.
  absl::Status AddTo(Kind kind, std::vector<const PickleValue*> items) {
    NACRE_ASSIGN_OR_RETURN(PickleValue* const value, Pop());
    if (value->kind != kind) return Bad("it adds to what has no items");
    if (kind == Kind::kDict && items.size() % 2 != 0) {
      return Bad("a key is without its value");
    }
    value->items.insert(value->items.end(), items.begin(), items.end());
    stack_.push_back(value);
    return absl::OkStatus();
  }
  absl::Status AddMarked(Kind kind) {
    NACRE_ASSIGN_OR_RETURN(std::vector<const PickleValue*> items, PopMarked());
    return AddTo(kind, std::move(items));
  }
  absl::Status AddLast(Kind kind, int count) {
    NACRE_RETURN_IF_ERROR(Tuple(count));
    NACRE_ASSIGN_OR_RETURN(const PickleValue* const last, Pop());
    return AddTo(kind, last->items);
  }

  absl::Status Remember(uint64_t index) {
    NACRE_ASSIGN_OR_RETURN(PickleValue* const value, Pop());
    stack_.push_back(value);
    memo_[index] = value;
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status RememberAs() {
    NACRE_ASSIGN_OR_RETURN(const T index, Number<T>());
    return Remember(index);
  }
  template <typename T>
  absl::Status Recall() {
    NACRE_ASSIGN_OR_RETURN(const T index, Number<T>());
    const auto found = memo_.find(index);
    if (found == memo_.end()) return Bad("it recalls what it has not kept");
    stack_.push_back(found->second);
    return absl::OkStatus();
  }

  // For messages: whose value is being built, the last name in the outermost
  // dictionary.
  std::string OfTensor() const {
    if (stack_.empty() || stack_[0]->kind != Kind::kDict) return "";
    // One that is filled in one go has a mark after it.
    const size_t own_marks = !marks_.empty() && marks_[0] == 1 ? 1 : 0;
    const size_t end =
        marks_.size() > own_marks ? marks_[own_marks] : stack_.size();
    for (size_t i = end; i-- > 1;) {
      if (stack_[i]->kind != Kind::kText) continue;
      return absl::StrCat(" (tensor ", ShownText(stack_[i]->text), ")");
    }
    return "";
  }

  absl::Status Global(absl::string_view module, absl::string_view name) {
    const std::string full = absl::StrCat(module, " ", name);
    const auto found = std::find(globals_.begin(), globals_.end(), full);
    if (found == globals_.end()) {
      return absl::UnimplementedError(absl::StrCat(
          "the pickle calls ", ShownText(full),
          ", and nothing of a pickle is run but what rebuilds tensors",
          OfTensor()));
    }
    Push(Kind::kGlobal)->text = *found;
    return absl::OkStatus();
  }
  absl::Status GlobalOfLines() {
    NACRE_ASSIGN_OR_RETURN(const absl::string_view module, Line());
    NACRE_ASSIGN_OR_RETURN(const absl::string_view name, Line());
    return Global(module, name);
  }
  absl::Status GlobalOfStack() {
    NACRE_ASSIGN_OR_RETURN(const PickleValue* const name, Pop());
    NACRE_ASSIGN_OR_RETURN(const PickleValue* const module, Pop());
    if (name->kind != Kind::kText || module->kind != Kind::kText) {
      return Bad("a name is no text");
    }
    return Global(module->text, name->text);
  }
  absl::Status Call() {
    NACRE_ASSIGN_OR_RETURN(const PickleValue* const arguments, Pop());
    NACRE_ASSIGN_OR_RETURN(const PickleValue* const called, Pop());
    if (called->kind != Kind::kGlobal || arguments->kind != Kind::kSequence) {
      return Bad("it calls what is no name");
    }
    // Filled afterwards.
    if (called->text == "collections OrderedDict" && arguments->items.empty()) {
      Push(Kind::kDict);
      return absl::OkStatus();
    }
    Push(Kind::kCall)->items = {called, arguments};
    return absl::OkStatus();
  }
  absl::Status Persistent() {
    NACRE_ASSIGN_OR_RETURN(const PickleValue* const id, Pop());
    Push(Kind::kPersistent)->items = {id};
    return absl::OkStatus();
  }

  absl::Status Step(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        return Take(1).status();
      case 0x95:  // FRAME
        return Take(8).status();
      case '(':
        marks_.push_back(stack_.size());
        return marks_.size() > kMaxDepth ? Bad("it has too many marks")
                                         : absl::OkStatus();
      case '.': {
        NACRE_ASSIGN_OR_RETURN(pickle_->root_, Pop());
        return absl::OkStatus();
      }
      case 'R':
        return Call();
      case 'b':  // BUILD: attributes of what lies under them
        return Pop().status();
      case 'c':
        return GlobalOfLines();
      case 0x93:
        return GlobalOfStack();
      case 'Q':
        return Persistent();
      case 'q':
        return RememberAs<uint8_t>();
      case 'r':
        return RememberAs<uint32_t>();
      case 0x94:
        return Remember(memo_.size());
      case 'h':
        return Recall<uint8_t>();
      case 'j':
        return Recall<uint32_t>();
      default:
        return StepOfData(code);
    }
  }

  absl::Status StepOfData(uint8_t code) {
    switch (code) {
      case 'N':
        Push(Kind::kOther);
        return absl::OkStatus();
      case 'G':  // a number with a fraction
        Push(Kind::kOther);
        return Take(8).status();
      case 0x88:
      case 0x89:
        Push(Kind::kNumber)->number = code == 0x88;
        return absl::OkStatus();
      case 'K':
        return NumberOf<uint8_t>();
      case 'M':
        return NumberOf<uint16_t>();
      case 'J':
        return NumberOf<int32_t>();
      case 0x8A:
        return Long();
      case 'X':
        return TextOf<uint32_t>();
      case 0x8C:
        return TextOf<uint8_t>();
      case 0x8D:
        return TextOf<uint64_t>();
      default:
        return StepOfItems(code);
    }
  }

  absl::Status StepOfItems(uint8_t code) {
    switch (code) {
      case ')':
      case ']':
        Push(Kind::kSequence);
        return absl::OkStatus();
      case '}':
        Push(Kind::kDict);
        return absl::OkStatus();
      case 't': {
        NACRE_ASSIGN_OR_RETURN(std::vector<const PickleValue*> items,
                               PopMarked());
        Push(Kind::kSequence)->items = std::move(items);
        return absl::OkStatus();
      }
      case 0x85:
      case 0x86:
      case 0x87:
        return Tuple(code - 0x84);
      case 'a':
        return AddLast(Kind::kSequence, 1);
      case 'e':
        return AddMarked(Kind::kSequence);
      case 's':
        return AddLast(Kind::kDict, 2);
      case 'u':
        return AddMarked(Kind::kDict);
      default:
        return absl::UnimplementedError(absl::StrFormat(
            "the pickle has the step 0x%02x, which builds no tensors", code));
    }
  }

  absl::string_view rest_;
  const absl::Span<const absl::string_view> globals_;
  Pickle* const pickle_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, PickleValue*> memo_;
};

absl::StatusOr<std::unique_ptr<Pickle>> Pickle::Parse(
    absl::string_view bytes, absl::Span<const absl::string_view> globals) {
  std::unique_ptr<Pickle> pickle(new Pickle());
  NACRE_RETURN_IF_ERROR(PickleReader(bytes, globals, pickle.get()).Run());
  return pickle;
}

}  // namespace nacre::model
