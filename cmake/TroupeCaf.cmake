# CAF 0.17's core as Debian packages it: a shared library and headers, no package file.
add_library(troupe_caf INTERFACE)
find_library(caf_core_LIBRARY caf_core REQUIRED)
find_path(CAF_INCLUDE_DIR caf/all.hpp REQUIRED)
target_include_directories(troupe_caf SYSTEM INTERFACE ${CAF_INCLUDE_DIR})
target_link_libraries(troupe_caf INTERFACE ${caf_core_LIBRARY} Threads::Threads)
