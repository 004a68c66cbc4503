# SPDX-License-Identifier: Apache-2.0
#
# The interpreter of the Python module, and the torch installed beside it, put first on CMAKE_PREFIX_PATH. Only looked for
# by path: inside pip's build isolation `import torch` fails, though the environment has it. torch is never a build
# requirement, since pip would install another one for the build alone.
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import os, sys, sysconfig
places = [sysconfig.get_path(n) for n in ('platlib', 'purelib')]
if sys.prefix == '/usr': places.append('/usr/lib/python3/dist-packages')
print(next((p + '/torch' for p in places if os.path.exists(p + '/torch/version.py')), ''), end='')"
  OUTPUT_VARIABLE PYTHON_TORCH COMMAND_ERROR_IS_FATAL ANY)
if(PYTHON_TORCH STREQUAL "")
  message(FATAL_ERROR "Slipstream is built for the torch of the environment it is installed into, and ${Python_EXECUTABLE} "
                      "has none: install torch there first (for example `pip install torch==2.13.0`)")
endif()
if(EXISTS ${PYTHON_TORCH}/share/cmake/Torch)  # else Debian's python3-torch, whose headers are in libtorch-dev
  list(PREPEND CMAKE_PREFIX_PATH ${PYTHON_TORCH})
endif()
message(STATUS "Torch of the module: ${PYTHON_TORCH}")
