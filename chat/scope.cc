#include "chat/scope.h"

namespace nacre::chat {

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, const Value& value) {
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = value;
      return;
    }
  }
  variables.emplace_back(name, value);
}

}  // namespace nacre::chat
