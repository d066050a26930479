#!/usr/bin/env bash
# clang-format of every source, spelling, and the width of Markdown.
source "$(dirname "$0")/common.sh"

clang-format --version
sources '*.h' '*.cc' '*.cu' '*.cuh' '*.proto' |
  xargs -0 clang-format --dry-run -Werror || {
  echo "not formatted as above: run make format"
  exit 1
}
# Words that are right stand in .ci/spelling.txt, one a line. Test data and
# Unicode's tables are not ours.
codespell --version
sources ':!tests/data' ':!tests/fuzz/corpus' ':!tokenizer/unicode_data.cc' \
  ':!LICENSE' ':!models/*/*' ':!*.png' |
  xargs -0 codespell --ignore-words .ci/spelling.txt || {
  echo "misspelt as above, or a word for .ci/spelling.txt"
  exit 1
}
sources '*.md' | xargs -0 scripts/wrap_markdown.py --check
