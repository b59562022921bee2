# Intel's Multi-Buffer Crypto library as Debian packages it: a shared library and a header, no package
# file. Defines IPSecMB::IPSecMB.
find_library(IPSECMB_LIBRARY IPSec_MB)
find_path(IPSECMB_INCLUDE_DIR intel-ipsec-mb.h)
mark_as_advanced(IPSECMB_LIBRARY IPSECMB_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(IPSecMB REQUIRED_VARS IPSECMB_LIBRARY IPSECMB_INCLUDE_DIR)
if(IPSECMB_FOUND AND NOT TARGET IPSecMB::IPSecMB)
  add_library(IPSecMB::IPSecMB UNKNOWN IMPORTED)
  set_target_properties(IPSecMB::IPSecMB PROPERTIES
    IMPORTED_LOCATION "${IPSECMB_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${IPSECMB_INCLUDE_DIR}")
endif()
