# Every library the project stands on, each as an imported target.
# HDF5 comes from pkg-config's hdf5-serial: the plain name resolves to the MPI
# flavour once that package is installed, and FindHDF5 drags in curl and szip.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(absl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
pkg_check_modules(deflate REQUIRED IMPORTED_TARGET libdeflate>=1.14)
pkg_check_modules(hdf5 REQUIRED IMPORTED_TARGET hdf5-serial>=1.10.8)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash>=0.8.1)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd>=1.5.4)
if(SHARDSHIFT_BUILD_TESTS)
  find_package(GTest REQUIRED)
  # Debian's interpreter is the one that apt gives h5py to.
  find_program(SHARDSHIFT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH
               REQUIRED)
endif()
