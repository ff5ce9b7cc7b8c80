# How the solver library HiGHS is compiled (`.cargo/config.toml` names this file to its build
# script). Its 220 files spend most of a build on the same headers: joined in groups, they take a
# third of the time. Outside `--release`, -O1 instead of -O3: the same code for arithmetic, so the
# same solutions, and half the compile time.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
# For another processor, whose compilers the release names: with a file of tools, the build script names none.
if(NOT "$ENV{TARGET}" STREQUAL "$ENV{HOST}")
  string(REPLACE "-" "_" target "$ENV{TARGET}")
  string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "$ENV{TARGET}")
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_C_COMPILER "$ENV{CC_${target}}")
  set(CMAKE_CXX_COMPILER "$ENV{CXX_${target}}")
endif()
if(NOT "$ENV{PROFILE}" STREQUAL "release")
  set(CMAKE_C_FLAGS_RELEASE "-O1 -DNDEBUG" CACHE STRING "C, outside of cargo's release profile")
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG" CACHE STRING "C++, outside of cargo's release profile")
endif()
# No product is contracted with a sum, where the processor could: the same solutions on every one.
# For a static program the flags hold -static. Objects need it not, and it cannot link the shared
# library that HiGHS makes beside its own, which nothing here loads.
foreach(language C CXX)
  string(REGEX REPLACE " (-static|-ffp-contract=off)" "" flags "${CMAKE_${language}_FLAGS}")
  set(CMAKE_${language}_FLAGS "${flags} -ffp-contract=off" CACHE STRING "without -static, exact" FORCE)
endforeach()
