find_program(CAPNP_COMPILER capnp REQUIRED)

# troupe_capnp(target schema.capnp): compiles the schema in this folder into the existing TARGET, whose
# sources may then include "<folder>/schema.capnp.h".
function(troupe_capnp target schema)
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(output "${PROJECT_BINARY_DIR}/generated/${folder}/${schema}")
  add_custom_command(
    OUTPUT "${output}.c++" "${output}.h"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/generated"
    COMMAND ${CAPNP_COMPILER} compile "-oc++:${PROJECT_BINARY_DIR}/generated"
            "--src-prefix=${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${schema}"
    DEPENDS "${schema}" VERBATIM)
  target_sources(${target} PRIVATE "${output}.c++")
  set_source_files_properties("${output}.c++" PROPERTIES SKIP_LINTING ON)
  target_include_directories(${target} SYSTEM PRIVATE "${PROJECT_BINARY_DIR}/generated")
  target_link_libraries(${target} PRIVATE PkgConfig::CAPNP)
endfunction()
