# `cmake --install build --prefix P` and `cpack -G DEB`. Four components, each a
# package: coordinator, worker (draft and target), models (the bundled pair) and
# nacre (the command, which starts the others, and the documents).
#
# Paths in units and their environment follow the prefix of the installation. With
# the prefix /usr, as in packages, configuration is in /etc, else in P/etc.

if(NOT NACRE_SERVICES)
  return()
endif()
include(GNUInstallDirs)

# --- Programs and manual pages ----------------------------------------------

find_program(HELP2MAN help2man)
if(NOT HELP2MAN)
  message(STATUS "No help2man: no manual pages are made or installed")
endif()
set(manual_pages)

# nacre_manual(COMPONENT SECTION PROGRAM SUMMARY [SUB-COMMAND]): the manual page of
# what the program, or a sub-command of it, prints for --help.
function(nacre_manual component section program summary)
  set(name ${program})
  set(help --help)
  if(ARGN)
    set(name ${program}-${ARGN})
    set(help "${ARGN} --help")
  endif()
  set(page ${PROJECT_BINARY_DIR}/man/${name}.${section})
  add_custom_command(
    OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
    COMMAND
      ${HELP2MAN} --no-info --section=${section} --name=${summary}
      --help-option=${help} --version-string=${name}\ ${PROJECT_VERSION}
      --source=Nacre\ ${PROJECT_VERSION} --output=${page} $<TARGET_FILE:${program}>
    DEPENDS ${program}
    VERBATIM)
  set(manual_pages ${manual_pages} ${page} PARENT_SCOPE)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
          COMPONENT ${component} OPTIONAL)  # `make build` has not made it
endfunction()

install(TARGETS nacre COMPONENT nacre)
# The gateway is a front end of the coordinator, in its package.
install(TARGETS nacre-coordinator nacre-gateway COMPONENT coordinator)
install(TARGETS nacre-draft-worker nacre-target-worker COMPONENT worker)
if(HELP2MAN)
  nacre_manual(coordinator 8 nacre-coordinator
               "public API, tokenizer and speculation schedule of Nacre")
  nacre_manual(coordinator 8 nacre-gateway
               "OpenAI's HTTP API for Nacre")
  nacre_manual(worker 8 nacre-draft-worker "serves Nacre's draft model")
  nacre_manual(worker 8 nacre-target-worker "serves Nacre's target model")
  nacre_manual(nacre 1 nacre "speculative decoding on two models")
  # "  up          run a coordinator ...", as tools/cluster/run_nacre.cc has them.
  file(STRINGS tools/cluster/run_nacre.cc lines REGEX "^    {\"[a-z]+\", \"")
  foreach(line ${lines})
    string(REGEX MATCH "\"([a-z]+)\", \"([^\"]+)" unused "${line}")
    nacre_manual(nacre 1 nacre "${CMAKE_MATCH_2}" ${CMAKE_MATCH_1})
  endforeach()
  # Not of `make quickstart`, which names its targets.
  add_custom_target(manual ALL DEPENDS ${manual_pages})
endif()

# --- Documents and models ---------------------------------------------------

install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/nacre COMPONENT nacre)
install(DIRECTORY docs deploy/grafana deploy/prometheus proto
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/nacre COMPONENT nacre
        PATTERN CMakeLists.txt EXCLUDE)
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/nacre
        COMPONENT models)
# Debian's name for the licence of a package.
foreach(component nacre coordinator worker models)
  set(package nacre-${component})
  if(component STREQUAL nacre)
    set(package nacre)
  endif()
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
          RENAME copyright COMPONENT ${component})
endforeach()

# --- Services ---------------------------------------------------------------

# nacre_service(COMPONENT NAME): nacre-NAME.service, and NAME.env unless there is
# one, which an operator has changed.
function(nacre_service component name)
  set(code [[
    set(BINDIR ${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_BINDIR@)
    set(DATADIR ${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_DATADIR@)
    set(SYSCONFDIR ${CMAKE_INSTALL_PREFIX}/etc)
    if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
      set(SYSCONFDIR /etc)
    endif()
    set(from "@PROJECT_SOURCE_DIR@/deploy/systemd")
    set(made "@PROJECT_BINARY_DIR@/systemd")
    configure_file(${from}/nacre-@name@.service.in ${made}/nacre-@name@.service
                   @ONLY)
    configure_file(${from}/@name@.env.in ${made}/@name@.env @ONLY)
    file(INSTALL ${made}/nacre-@name@.service
         DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
    if(NOT EXISTS $ENV{DESTDIR}${SYSCONFDIR}/nacre/@name@.env)
      file(INSTALL ${made}/@name@.env DESTINATION ${SYSCONFDIR}/nacre)
    endif()
  ]])
  # "@ONLY" stays: it is no name between two signs.
  string(CONFIGURE "${code}" code @ONLY)
  install(CODE "${code}" COMPONENT ${component})
endfunction()
nacre_service(coordinator coordinator)
nacre_service(coordinator gateway)
nacre_service(worker draft-worker)
nacre_service(worker target-worker)

# --- Debian packages --------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME nacre)
set(CPACK_PACKAGE_VENDOR "Nacre maintainers")
# dpkg wants an address: give yours if you hand the packages on.
set(NACRE_PACKAGE_CONTACT "Nacre maintainers <maintainers@nacre.invalid>"
    CACHE STRING "Name and address of who makes the Debian packages")
set(CPACK_PACKAGE_CONTACT "${NACRE_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
# Files under /etc are no part of the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL nacre coordinator worker models)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MODELS_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_MODELS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_NACRE_PACKAGE_NAME nacre)
set(CPACK_DEBIAN_NACRE_PACKAGE_DEPENDS
    "nacre-coordinator (= ${PROJECT_VERSION}), nacre-worker (= ${PROJECT_VERSION})")
foreach(component NACRE COORDINATOR WORKER)
  set(CPACK_DEBIAN_${component}_PACKAGE_RECOMMENDS nacre-models)
endforeach()
set(CPACK_COMPONENT_NACRE_DESCRIPTION
    "Speculative decoding on two models: the nacre command\n\
 Starts, calls and measures coordinator and workers; with the documents.")
set(CPACK_COMPONENT_COORDINATOR_DESCRIPTION
    "Speculative decoding on two models: the coordinator\n\
 The public gRPC API; pairs requests with workers. With the gateway, which\n\
 serves OpenAI's HTTP API. Two systemd services.")
set(CPACK_COMPONENT_WORKER_DESCRIPTION
    "Speculative decoding on two models: draft and target workers\n\
 Each serves one model to a coordinator. Two systemd services.")
set(CPACK_COMPONENT_MODELS_DESCRIPTION
    "Speculative decoding on two models: the bundled pair\n\
 A small draft and target, which the services use unless told otherwise,\n\
 and two drafts that were trained on what the target writes.")

# nacre_package_control(COMPONENT NAME...): services of a package, whose
# environment is an operator's to change.
function(nacre_package_control component)
  set(folder ${PROJECT_BINARY_DIR}/package-control/${component})
  set(conffiles)
  foreach(name ${ARGN})
    string(APPEND conffiles "/etc/nacre/${name}.env\n")
  endforeach()
  file(WRITE ${folder}/conffiles "${conffiles}")
  set(extra ${folder}/conffiles)
  foreach(script postinst prerm postrm)
    list(APPEND extra ${PROJECT_SOURCE_DIR}/deploy/debian/${script})
  endforeach()
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${extra}" PARENT_SCOPE)
endfunction()
nacre_package_control(coordinator coordinator gateway)
nacre_package_control(worker draft-worker target-worker)
include(CPack)
