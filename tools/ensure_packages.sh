#!/bin/sh
# Makes sure that what the given Debian packages provide is there:   tools/ensure_packages.sh PACKAGE...
#
# Where something is missing: on Debian and Ubuntu apt-get installs the packages (through sudo unless run as root),
# saying so; on other systems the missing things are named and the exit code is 1.
set -eu

# True if what the package provides is found.
have() {
  case $1 in
    g++) command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null ;;
    cmake | pkg-config) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    python3) command -v python3 >/dev/null ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    libeigen3-dev) pkg-config --exists eigen3 2>/dev/null ;;
    nlohmann-json3-dev) pkg-config --exists nlohmann_json 2>/dev/null ;;
    libcli11-dev) pkg-config --exists CLI11 2>/dev/null ;;
    libutf8proc-dev) pkg-config --exists libutf8proc 2>/dev/null ;;
    libgtest-dev) pkg-config --exists gtest 2>/dev/null ;;
    libbenchmark-dev) pkg-config --exists benchmark 2>/dev/null ;;
    *) dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed ;;
  esac
}

missing=
for package in "$@"; do
  have "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "Missing here (by the names of their Debian packages):$missing" >&2
  echo "Install them with this system's package manager, then run this again." >&2
  exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing:$missing. Neither root nor sudo is at hand; as root: apt-get install$missing" >&2
    exit 1
  fi
  sudo=sudo
fi
echo "Installing with apt-get:$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086  # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
