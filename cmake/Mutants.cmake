# Bugs that are planted to see whether tests find them.
#
# A list of them is a CMake file of calls:
#   nacre_mutant(NAME FILE CODE INSTEAD)            an expression
#   nacre_mutant_statement(NAME FILE CODE INSTEAD)  one or more statements
# CODE must be in FILE exactly once. Where a change of FILE removes it, plant the
# same bug in the new code.

# nacre_mutants(LIST NAMES COPIES): of a list in this folder the mutants' names,
# with commas between them, and copies of the sources, in which a test switches
# mutants on one at a time (tests/testing/mutant.h). They lie in the folder
# `mutants` of the build folder as the sources do in the root.
function(nacre_mutants list names copies)
  set(found_names)
  set(files)
  # They see the variables of this function.
  function(nacre_mutant name file)
    list(APPEND found_names ${name})
    list(APPEND files ${file})
    set(found_names ${found_names} PARENT_SCOPE)
    set(files ${files} PARENT_SCOPE)
  endfunction()
  function(nacre_mutant_statement name file)
    nacre_mutant(${name} ${file})
    set(found_names ${found_names} PARENT_SCOPE)
    set(files ${files} PARENT_SCOPE)
  endfunction()
  include(${list})
  list(REMOVE_DUPLICATES files)
  list(REMOVE_DUPLICATES found_names)
  set(outputs)
  foreach(file ${files})
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/mutants/${file})
    add_custom_command(
      OUTPUT ${copy}
      COMMAND
        ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D FILE=${file} -D
        MUTANTS=${CMAKE_CURRENT_SOURCE_DIR}/${list} -D OUTPUT=${copy} -P
        ${PROJECT_SOURCE_DIR}/cmake/apply_mutants.cmake
      DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${list}
              ${PROJECT_SOURCE_DIR}/cmake/apply_mutants.cmake)
    list(APPEND outputs ${copy})
  endforeach()
  list(JOIN found_names "," joined)
  set(${names} ${joined} PARENT_SCOPE)
  set(${copies} ${outputs} PARENT_SCOPE)
endfunction()
