# cmake -D ROOT=... -D FILE=path -D MUTANTS=a list -D OUTPUT=... -P this
# Writes a copy of ROOT/FILE in which each mutant of FILE can be switched on at
# run time (mutant.h).
file(READ "${ROOT}/${FILE}" text)

function(nacre_replace_once name file code instead)
  if(NOT "${file}" STREQUAL "${FILE}")
    return()
  endif()
  string(FIND "${text}" "${code}" first_at)
  string(FIND "${text}" "${code}" last_at REVERSE)
  if(first_at EQUAL -1 OR NOT first_at EQUAL last_at)
    message(FATAL_ERROR "mutant ${name}: its code is not in ${FILE} exactly "
                        "once; adapt ${MUTANTS}:\n${code}")
  endif()
  string(REPLACE "${code}" "${instead}" text "${text}")
  set(text "${text}" PARENT_SCOPE)
endfunction()
function(nacre_mutant_statement name file code instead)
  nacre_replace_once("${name}" "${file}" "${code}"
    "if (::nacre::MutantIs(\"${name}\")) {\n${instead}\n} else {\n${code}\n}")
  set(text "${text}" PARENT_SCOPE)
endfunction()
function(nacre_mutant name file code instead)
  nacre_replace_once("${name}" "${file}" "${code}"
    "(::nacre::MutantIs(\"${name}\") ? (${instead}) : (${code}))")
  set(text "${text}" PARENT_SCOPE)
endfunction()

include("${MUTANTS}")
file(WRITE "${OUTPUT}" "#include \"tests/testing/mutant.h\"\n${text}")
