#!/bin/sh
# Lays out the headers of Eigen 5 as a CMake package in DIR (default .cache/eigen5): use it with -DEigen3_DIR=DIR.
# They come from the PyPI package eigency, whose wheel carries them. usage: get_eigen5.sh [DIR]
set -eu
version=5.0.1.1
dir=${1:-$(dirname "$0")/../.cache/eigen5}
if [ -f "$dir/Eigen3Config.cmake" ] && grep -q "eigency $version" "$dir/Eigen3Config.cmake"; then
  echo "Eigen 5 is in $dir"
  exit 0
fi
download=$(mktemp -d)
trap 'rm -r "$download"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$download" "eigency==$version"
mkdir -p "$dir"
python3 -m zipfile -e "$download"/eigency-*.whl "$download/wheel"
rm -rf "$dir/Eigen"
cp -r "$download/wheel/eigency/eigen/Eigen" "$dir/Eigen"
cat >"$dir/Eigen3Config.cmake" <<END
# Headers of the PyPI package eigency $version.
if(NOT TARGET Eigen3::Eigen)
  add_library(Eigen3::Eigen INTERFACE IMPORTED)
  set_target_properties(Eigen3::Eigen PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "\${CMAKE_CURRENT_LIST_DIR}")
endif()
END
cat >"$dir/Eigen3ConfigVersion.cmake" <<END
set(PACKAGE_VERSION 5.0.1)
if(NOT PACKAGE_FIND_VERSION_MAJOR OR PACKAGE_FIND_VERSION_MAJOR EQUAL 5)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
END
echo "Eigen 5 (eigency $version) is now in $dir"
