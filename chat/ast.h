// The parsed program of a template. Plain data, never changed after parsing;
// nodes and constants belong to the Program.

#ifndef CHAT_AST_H_
#define CHAT_AST_H_

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "chat/text.h"
#include "chat/value.h"

namespace nacre::chat {

enum class ExprKind {
  kConst,      // constant
  kName,       // name
  kAttribute,  // children[0] . name
  kItem,       // children[0] [children[1]]
  kSlice,  // children[0] [children[1] : children[2] : children[3]], nullable
  kList,
  kTuple,
  kDict,     // key, value, key, value, ...
  kTernary,  // test, then, else (nullptr: undefined)
  kOr,
  kAnd,
  kNot,
  kCompare,  // children[0] operators[0] children[1] operators[1] ...
  kBinary,   // operators[0]
  kUnary,    // operators[0]
  kConcat,
  kCall,      // children[0] (call)
  kFilter,    // children[0] | name(call)
  kTest,      // children[0] is name(call)
  kCaptured,  // the text of the block that a filter is applied to
};

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;

struct CallNode {
  std::vector<const Expr*> positional;
  std::vector<std::pair<std::string, const Expr*>> named;
  const Expr* star = nullptr;       // *list
  const Expr* star_star = nullptr;  // **dict
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  std::string name;
  Value constant;
  std::vector<const Expr*> children;
  std::vector<Operator> operators;
  CallNode call;
};

// What an assignment writes to: a name, an attribute of a namespace, or
// several.
struct Target {
  std::string name;
  std::string attribute;  // not empty: of the namespace `name`
  bool is_tuple = false;
  std::vector<Target> items;
  int line = 0;
};

enum class StatementKind {
  kData,        // text
  kPrint,       // expr
  kIf,          // branches, otherwise
  kFor,         // target in expr (if test): body, otherwise
  kSet,         // target = expr
  kSetBlock,    // target = body (through expr, a chain of filters, nullable)
  kMacro,       // macro
  kCall,        // expr is the call, macro its caller
  kFilter,      // expr is a chain of filters over body
  kWith,        // targets = values: body
  kGeneration,  // body
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<const Statement*>;

struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<const Expr*> defaults;  // of the last parameters
  Body body;
  // The body names them, so a caller may give them.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Statement {
  StatementKind kind = StatementKind::kData;
  int line = 0;
  const Text* text = nullptr;
  const Expr* expr = nullptr;
  const Expr* test = nullptr;
  bool recursive = false;
  Target target;
  std::vector<std::pair<Target, const Expr*>> assignments;
  std::vector<std::pair<const Expr*, Body>> branches;
  Body body;
  Body otherwise;
  MacroNode macro;
};

struct Program {
  Body body;
  // They never move: nodes point at one another.
  std::deque<Expr> exprs;
  std::deque<Statement> statements;
  std::deque<Text> texts;
};

}  // namespace nacre::chat

#endif  // CHAT_AST_H_
