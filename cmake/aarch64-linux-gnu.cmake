# Toolchain file: cross-compiles for 64-bit Arm with Debian's compiler and runs the tests under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The cross compiler's own libraries first: where libc6:arm64 is installed too, its libc would meet the dynamic
# linker of another build, and starting a thread never ends.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/usr/aarch64-linux-gnu;
                                  -E;LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
