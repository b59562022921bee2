# find_package(troupe 0.2 CONFIG): troupe::runtime and troupe::parallel.
include(CMakeFindDependencyMacro)
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
foreach(package Threads OpenSSL IPSecMB fmt spdlog CAF)
  find_dependency(${package})
endforeach()
list(REMOVE_ITEM CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
include("${CMAKE_CURRENT_LIST_DIR}/troupeTargets.cmake")
