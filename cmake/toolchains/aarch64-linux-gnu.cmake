# 64-bit Arm from another machine: Debian's cross compiler and the arm64 packages
# of the same Debian (scripts/install_deps.sh --cross-arm64). What is built runs
# there under qemu-user, so CTest works as on the machine itself.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# The libraries of the machine that compiles are no answer, not even to what has
# no arm64 package installed.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
