# CAF 0.17's core as Debian packages it: a shared library and headers, no package file. Defines CAF::core.
find_library(CAF_CORE_LIBRARY caf_core)
find_path(CAF_INCLUDE_DIR caf/all.hpp)
mark_as_advanced(CAF_CORE_LIBRARY CAF_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF REQUIRED_VARS CAF_CORE_LIBRARY CAF_INCLUDE_DIR)
if(CAF_FOUND AND NOT TARGET CAF::core)
  add_library(CAF::core UNKNOWN IMPORTED)
  set_target_properties(CAF::core PROPERTIES
    IMPORTED_LOCATION "${CAF_CORE_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
endif()
