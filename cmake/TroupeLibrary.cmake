# The actor runtime as two libraries for other programs: troupe::runtime and troupe::parallel, of the
# folders' objects. The same names serve projects that add this one and those that find it installed.

# Headers for others are copies below one folder, troupe/, whose include lines name it too: there is no
# "runtime/..." in the include path of who uses them. They are made by the build, for both ways.
set(TROUPE_HEADERS "${PROJECT_BINARY_DIR}/include")
file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/runtime/*.hpp" "${PROJECT_SOURCE_DIR}/parallel/*.hpp")
list(FILTER headers EXCLUDE REGEX "/(caf_[^/]*|channel/.*|http/.*|troupe/.*|examples/.*|experts/.*|pipeline/.*|cuda/.*|nccl/.*|peer/.*)$")
# runtime/troupe.hpp is <troupe/troupe.hpp>, runtime/base/log.hpp is <troupe/runtime/base/log.hpp>.
list(TRANSFORM headers REPLACE "^[a-z]+/([^/]+)$" "\\1" OUTPUT_VARIABLE copies)
list(TRANSFORM copies PREPEND "${TROUPE_HEADERS}/troupe/")
set(copy_headers "${PROJECT_SOURCE_DIR}/cmake/CopyHeaders.cmake")
add_custom_command(OUTPUT ${copies}
  COMMAND ${CMAKE_COMMAND} -D "FROM=." -D "TO=${TROUPE_HEADERS}" -D "HEADERS=${headers}" -P "${copy_headers}"
  DEPENDS ${headers} "${copy_headers}" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Copying headers for other programs" VERBATIM)
add_custom_target(troupe_headers DEPENDS ${copies})

# troupe_archive(layer [EXCEPT folder ...] [PUBLIC target ...] [PRIVATE target ...]): the library
# troupe::LAYER of the libraries of that layer, but those of the folders named, with the third parties
# that users' own code needs (PUBLIC) and that are only linked (PRIVATE).
function(troupe_archive layer)
  cmake_parse_arguments(ARG "" "" "EXCEPT;PUBLIC;PRIVATE" ${ARGN})
  get_property(libraries GLOBAL PROPERTY TROUPE_LIBRARIES)
  list(FILTER libraries INCLUDE REGEX "^${layer}_")
  list(TRANSFORM ARG_EXCEPT PREPEND "${layer}_")
  list(REMOVE_ITEM libraries ${ARG_EXCEPT})
  list(TRANSFORM libraries REPLACE ".+" "$<TARGET_OBJECTS:\\0>")
  add_library(troupe_${layer} STATIC ${libraries})
  add_library(troupe::${layer} ALIAS troupe_${layer})
  set_target_properties(troupe_${layer} PROPERTIES EXPORT_NAME ${layer} LINKER_LANGUAGE CXX)
  target_compile_features(troupe_${layer} PUBLIC cxx_std_20)
  target_include_directories(troupe_${layer} INTERFACE "$<BUILD_INTERFACE:${TROUPE_HEADERS}>")
  target_link_libraries(troupe_${layer} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  add_dependencies(troupe_${layer} troupe_headers)
endfunction()

troupe_archive(runtime EXCEPT channel http troupe
  PUBLIC fmt::fmt PRIVATE spdlog::spdlog CAF::core OpenSSL::SSL OpenSSL::Crypto IPSecMB::IPSecMB
    Threads::Threads)
troupe_archive(parallel EXCEPT experts pipeline device_cuda collectives_nccl collectives_peer
  PUBLIC troupe_runtime)

if(NOT TROUPE_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(folder "${CMAKE_INSTALL_LIBDIR}/cmake/troupe")
install(TARGETS troupe_runtime troupe_parallel EXPORT troupe COMPONENT runtime_dev
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT troupe NAMESPACE troupe:: FILE troupeTargets.cmake DESTINATION "${folder}" COMPONENT runtime_dev)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES cmake/troupeConfig.cmake cmake/FindCAF.cmake cmake/FindIPSecMB.cmake
  "${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake"
  DESTINATION "${folder}" COMPONENT runtime_dev)
install(DIRECTORY "${TROUPE_HEADERS}/troupe" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT runtime_dev)
install(DIRECTORY runtime/examples DESTINATION "${CMAKE_INSTALL_DATADIR}/troupe" COMPONENT runtime_dev)
install(TARGETS troupe RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime_dev)
