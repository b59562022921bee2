# CAF 0.17 as Debian packages it: three shared libraries and headers, no package file.
add_library(troupe_caf INTERFACE)
foreach(part caf_core caf_io caf_openssl)
  find_library(${part}_LIBRARY ${part} REQUIRED)
  target_link_libraries(troupe_caf INTERFACE ${${part}_LIBRARY})
endforeach()
find_path(CAF_INCLUDE_DIR caf/all.hpp REQUIRED)
target_include_directories(troupe_caf SYSTEM INTERFACE ${CAF_INCLUDE_DIR})
target_link_libraries(troupe_caf INTERFACE OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
