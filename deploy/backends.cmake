# Which optional backends are built: GRADWEIR_UCX, GRADWEIR_CUDA, GRADWEIR_NCCL, GRADWEIR_GLOO, each ON, OFF or AUTO.
#
# AUTO takes a backend when its library is found and its sources are in this tree; ON makes a missing one an error. Each
# backend that is taken becomes a target backend_NAME to link and a definition GRADWEIR_NAME for the one #ifdef in its
# seam's table (transport.c, device.c, collective.c). UCX_ROOT points at a UCX of one's own.
include_guard()

foreach(name UCX CUDA NCCL GLOO)
    set(GRADWEIR_${name} AUTO CACHE STRING "Build the ${name} backend: ON, OFF or AUTO")
    set_property(CACHE GRADWEIR_${name} PROPERTY STRINGS AUTO ON OFF)
    if(NOT GRADWEIR_${name} MATCHES "^(ON|OFF|AUTO)$")
        message(FATAL_ERROR "GRADWEIR_${name} is ON, OFF or AUTO, not \"${GRADWEIR_${name}}\"")
    endif()
endforeach()
set(UCX_ROOT "" CACHE PATH "Folder of an own UCX (with include/ and lib/); empty: the system's")
set(BACKEND_TABLE "")

# backend_row(NAME FOUND WHAT FOLLOWS): a line of the table that is printed at the end.
function(backend_row name found follows)
    string(SUBSTRING "${name}      " 0 6 name_cell)
    string(SUBSTRING "${GRADWEIR_${name}}     " 0 6 asked_cell)
    string(SUBSTRING "${found}                                          " 0 42 found_cell)
    set(BACKEND_TABLE "${BACKEND_TABLE}\n--   ${name_cell}${asked_cell}${found_cell}${follows}" PARENT_SCOPE)
endfunction()

# backend_decide(NAME FOUND DESCRIPTION SOURCES WITH WITHOUT): sets BACKEND_NAME and the table's row.
macro(backend_decide name found description sources with without)
    set(BACKEND_${name} OFF)
    if(GRADWEIR_${name} STREQUAL OFF)
        backend_row(${name} "not looked for" "${without}")
    elseif(NOT ${found})
        if(GRADWEIR_${name} STREQUAL ON)
            message(FATAL_ERROR "GRADWEIR_${name}=ON, but it was not found: ${description}")
        endif()
        backend_row(${name} "not found" "${without}")
    elseif(NOT EXISTS ${PROJECT_SOURCE_DIR}/${sources})
        if(GRADWEIR_${name} STREQUAL ON)
            message(FATAL_ERROR "GRADWEIR_${name}=ON, but this tree has no ${sources}")
        endif()
        backend_row(${name} "${description}" "${without} (no ${sources} in this tree)")
    else()
        set(BACKEND_${name} ON)
        target_compile_definitions(backend_${name} INTERFACE GRADWEIR_${name}=1)
        backend_row(${name} "${description}" "${with}")
    endif()
endmacro()

foreach(name UCX CUDA NCCL GLOO)
    add_library(backend_${name} INTERFACE)
endforeach()

set(UCX_DESCRIPTION "pkg-config ucx, or UCX_ROOT")
if(NOT GRADWEIR_UCX STREQUAL OFF)
    if(UCX_ROOT)
        set(ENV{PKG_CONFIG_PATH} "${UCX_ROOT}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
    endif()
    pkg_check_modules(UCX QUIET IMPORTED_TARGET ucx)
    if(UCX_FOUND)
        set(UCX_DESCRIPTION "${UCX_VERSION} in ${UCX_LIBDIR}")
        target_link_libraries(backend_UCX INTERFACE PkgConfig::UCX)
        if(UCX_ROOT)
            target_link_options(backend_UCX INTERFACE "-Wl,-rpath,${UCX_LIBDIR}")
            if(NOT UCX_PREFIX STREQUAL UCX_ROOT)
                message(WARNING "UCX_ROOT is ${UCX_ROOT}, but the UCX that was found is in ${UCX_PREFIX}")
            endif()
        endif()
    endif()
endif()
backend_decide(UCX UCX_FOUND "${UCX_DESCRIPTION}" common/transport_ucx.c
    "floats travel over UCX" "no data plane: cores, simulator and gradweir-train --local only")

# Builds with sanitizers are about our C: they leave the GPU's side out unless told.
if(GRADWEIR_CUDA STREQUAL AUTO AND (GRADWEIR_SANITIZE OR GRADWEIR_SANITIZE_THREADS))
    set(GRADWEIR_CUDA OFF)
endif()
set(CUDA_FOUND_HERE FALSE)
set(CUDA_DESCRIPTION "the CUDA toolkit (nvcc)")
if(NOT GRADWEIR_CUDA STREQUAL OFF)
    # CMake 3.25, as Debian 12 has it, fails where CUDA 13 has no nvToolsExt any more. Nobody here links it.
    if(NOT TARGET CUDA::nvToolsExt)
        add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
        set(CUDA_FOUND_HERE TRUE)
        set(CUDA_DESCRIPTION "${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
        target_link_libraries(backend_CUDA INTERFACE CUDA::cudart_static)
    endif()
endif()
backend_decide(CUDA CUDA_FOUND_HERE "${CUDA_DESCRIPTION}" gpu/device_cuda.c
    "GPU shards and workers" "arithmetic on the CPU")

# Only its header is needed: libnccl is looked up when a group of GPU ranks is first joined.
set(NCCL_FOUND_HERE FALSE)
set(NCCL_DESCRIPTION "nccl.h, and CUDA")
if(NOT GRADWEIR_NCCL STREQUAL OFF AND BACKEND_CUDA)
    find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    if(NCCL_INCLUDE)
        set(NCCL_FOUND_HERE TRUE)
        set(NCCL_DESCRIPTION "nccl.h in ${NCCL_INCLUDE}")
        target_include_directories(backend_NCCL INTERFACE ${NCCL_INCLUDE})
    endif()
endif()
backend_decide(NCCL NCCL_FOUND_HERE "${NCCL_DESCRIPTION}" gpu/collective_nccl.c
    "groups of GPU ranks" "no groups of GPU ranks")

set(GLOO_FOUND_HERE FALSE)
set(GLOO_DESCRIPTION "gloo/context.h and libgloo")
if(NOT GRADWEIR_GLOO STREQUAL OFF)
    find_path(GLOO_INCLUDE gloo/context.h)
    find_library(GLOO_LIBRARY gloo)
    if(GLOO_INCLUDE AND GLOO_LIBRARY)
        set(GLOO_FOUND_HERE TRUE)
        set(GLOO_DESCRIPTION "${GLOO_LIBRARY}")
        target_include_directories(backend_GLOO SYSTEM INTERFACE ${GLOO_INCLUDE})
        target_link_libraries(backend_GLOO INTERFACE ${GLOO_LIBRARY})
    endif()
endif()
backend_decide(GLOO GLOO_FOUND_HERE "${GLOO_DESCRIPTION}" common/collective_gloo.cpp
    "groups of CPU ranks" "no groups of CPU ranks")

message(STATUS "Gradweir ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, "
    "sanitizers ${GRADWEIR_SANITIZE}, tests ${GRADWEIR_TESTS}\n"
    "--   name  asked found                                     what follows${BACKEND_TABLE}")
