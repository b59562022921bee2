# What `cmake --install` installs, and the packages that scripts/package makes of it: one folder that
# can lie anywhere. The C and C++ libraries and CUDA's are the machine's; all others are inside.
set(TROUPE_PRIVATE_LIBRARIES "lib/troupe")

# troupe_install(target): installs a program or library into bin/, with the libraries that it needs in
# TROUPE_PRIVATE_LIBRARIES.
function(troupe_install target)
  # DT_RPATH instead of DT_RUNPATH: it also serves the libraries that our libraries need.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../${TROUPE_PRIVATE_LIBRARIES}")
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET troupe_libraries
    RUNTIME DESTINATION bin COMPONENT programs LIBRARY DESTINATION bin COMPONENT programs)
endfunction()

troupe_install(launcher)
troupe_install(troupe)
if(TROUPE_CUDA)
  troupe_install(troupe_cuda)
endif()
install(RUNTIME_DEPENDENCY_SET troupe_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\\+\\+)\\.so"
                      "^lib(cuda|cudart|cublas|cublasLt|nccl|nvrtc)\\.so"
  LIBRARY DESTINATION ${TROUPE_PRIVATE_LIBRARIES} COMPONENT programs)
install(DIRECTORY configs docs DESTINATION . COMPONENT programs)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION . COMPONENT programs)

set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_CONTACT "Troupe's developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed actor runtime and batch inference engine for language models")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
if(TROUPE_CUDA)
  set(CPACK_PACKAGE_FILE_NAME "troupe-${PROJECT_VERSION}-linux-x86_64-cuda")
else()
  set(CPACK_PACKAGE_FILE_NAME "troupe-${PROJECT_VERSION}-linux-x86_64")
endif()
# The Debian package lies in /opt/troupe (scripts/package), as add-on software does, with a link in
# /usr/bin.
set(CPACK_DEBIAN_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}.deb")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openssh-client")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/cmake/package/postinst;${PROJECT_SOURCE_DIR}/cmake/package/prerm")
# The programs; scripts/package makes a tarball of the component runtime_dev besides.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};troupe;programs;/")
include(CPack)
