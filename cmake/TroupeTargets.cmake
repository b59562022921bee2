# The functions that every CMakeLists.txt of the project uses.

function(troupe_set_global_flags)
  set(CMAKE_CXX_STANDARD 20 PARENT_SCOPE)
  set(CMAKE_CXX_STANDARD_REQUIRED ON PARENT_SCOPE)
  set(CMAKE_CXX_EXTENSIONS OFF PARENT_SCOPE)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON PARENT_SCOPE)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin" PARENT_SCOPE)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON PARENT_SCOPE)
  if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  # Wider kernels than TROUPE_MARCH has are chosen at run time. Contraction is off so that two ways to
  # write one sum never differ in bits: kernels call fma explicitly.
  if(TROUPE_MARCH)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-march=${TROUPE_MARCH}>")
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-Wall;-Wextra;-Wpedantic;-Werror=return-type>")
  if(TROUPE_SANITIZE)
    # Builds for finding bugs keep assertions.
    add_compile_options(-fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer -g1 -UNDEBUG)
    add_link_options(-fsanitize=${TROUPE_SANITIZE})
  endif()
  include_directories("${PROJECT_SOURCE_DIR}")
  find_program(CCACHE ccache)
  if(CCACHE)
    # Paths below the root count as relative ones, and the build folder's not at all, so that all
    # checkouts share what is compiled.
    set(launcher env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}" PARENT_SCOPE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${launcher}" PARENT_SCOPE)
  endif()
  find_program(MOLD mold)
  if(MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endfunction()

# troupe_add_subfolders([folder ...]): adds every direct subfolder that has a CMakeLists.txt, but those named.
macro(troupe_add_subfolders)
  file(GLOB _entries CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
  foreach(_folder ${ARGN})
    list(REMOVE_ITEM _entries "${CMAKE_CURRENT_SOURCE_DIR}/${_folder}/CMakeLists.txt")
  endforeach()
  foreach(_entry ${_entries})
    get_filename_component(_folder "${_entry}" DIRECTORY)
    add_subdirectory("${_folder}")
  endforeach()
endmacro()

# Sets `out` to the files that match the patterns in this folder and in those below it, without the
# subfolders that have a CMakeLists.txt and thus a target of their own.
function(troupe_sources out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARGN})
  file(GLOB_RECURSE targets CONFIGURE_DEPENDS "CMakeLists.txt")
  foreach(target ${targets})
    get_filename_component(folder "${target}" DIRECTORY)
    if(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
      list(FILTER sources EXCLUDE REGEX "^${folder}/")
    endif()
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# troupe_library([DEPENDS folder ...] [LIBS target ...])
# One static library of the sources in this folder and its subfolders (troupe_sources), named after it:
# models/text -> models_text. DEPENDS names other folders; LIBS names third-party targets, private to
# this folder.
function(troupe_library)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBS" ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" name "${folder}")
  troupe_sources(sources "*.cpp" "*.cu")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(sources)
    add_library(${name} STATIC ${sources})
    set_property(GLOBAL APPEND PROPERTY TROUPE_LIBRARIES ${name})  # see TroupeLibrary
    target_link_libraries(${name} PRIVATE ${ARG_LIBS})
    set(kind PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(kind INTERFACE)
  endif()
  foreach(dep ${ARG_DEPENDS})
    string(REPLACE "/" "_" target "${dep}")
    target_link_libraries(${name} ${kind} ${target})
  endforeach()
endfunction()

# troupe_test([DEPENDS folder ...] [LIBS target ...] [LABELS label ...] [SEPARATE source ...] [MAIN] [TIMEOUT s])
# One GoogleTest program of all *.test.cpp (and helpers) in this folder and its subfolders
# (troupe_sources): tests/unit/models/text ->
# unit_models_text, label unit. MAIN: the folder has its own main.cpp (a program that spawns actors
# must call troupe::init first). SEPARATE: sources, or patterns, that give names of their own to what
# others name so too, and thus are not compiled together with others.
function(troupe_test)
  cmake_parse_arguments(ARG "MAIN" "TIMEOUT" "DEPENDS;LIBS;LABELS;SEPARATE" ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" name "${folder}")
  string(REGEX REPLACE "/.*" "" layer "${folder}")
  troupe_sources(sources "*.cpp")
  add_executable(${name} ${sources})
  if(ARG_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock test_source_path ${ARG_LIBS})
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main GTest::gmock test_source_path ${ARG_LIBS})
  endif()
  foreach(dep ${ARG_DEPENDS})
    string(REPLACE "/" "_" target "${dep}")
    target_link_libraries(${name} PRIVATE ${target})
  endforeach()
  # Headers are most of what a test compiles: eight sources at a time, hardly optimised, take a quarter.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  if(ARG_SEPARATE)
    file(GLOB separate CONFIGURE_DEPENDS ${ARG_SEPARATE})
    set_source_files_properties(${separate} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  # Messages name files by their paths in the repository, which ccache finds equal in all checkouts.
  target_compile_options(${name} PRIVATE -O1 "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TROUPE_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  # One joined label, "fault-full": gtest_discover_tests splits a list and loses all but the first,
  # and the timeout. ctest's -L and -LE match any part of a label.
  string(JOIN "-" labels "${layer}" ${ARG_LABELS})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${layer}/"
    PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# troupe_bench(name [DEPENDS folder ...] [LIBS target ...]): the program NAME from NAME.cpp here.
# A bench prints figures and is not a test.
function(troupe_bench name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBS" ${ARGN})
  add_executable(${name} ${name}.cpp)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  foreach(dep ${ARG_DEPENDS})
    string(REPLACE "/" "_" target "${dep}")
    target_link_libraries(${name} PRIVATE ${target})
  endforeach()
endfunction()
