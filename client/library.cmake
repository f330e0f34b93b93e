# libgradweir, shared and static, and its installation with headers, a pkg-config file and a CMake package.
#
# gradweir_library(OBJECTS...): from object libraries with the client's sources makes
#   gradweir_shared   libgradweir.so, soname libgradweir.so.MAJOR; what is not gradweir_ stays inside, templates of the
#                     C++ library too
#   gradweir_static   libgradweir.a: one object made of the client and what it needs of common/, all other symbols
#                     made local, so that only gradweir_ leaves it, as from the shared one
include(GNUInstallDirs)

set(GRADWEIR_NEEDS libzmq msgpack libisal libxxhash)
set(GRADWEIR_NEEDS_LIBRARIES "") # that have no pkg-config file
if(BACKEND_GLOO)
    list(APPEND GRADWEIR_NEEDS_LIBRARIES gloo stdc++)
endif()
if(BACKEND_UCX)
    list(APPEND GRADWEIR_NEEDS ucx)
endif()

function(gradweir_library)
    set(objects "")
    foreach(name ${ARGN})
        list(APPEND objects $<TARGET_OBJECTS:${name}>)
    endforeach()
    add_library(gradweir_shared SHARED ${objects})
    target_link_libraries(gradweir_shared PRIVATE gradweir_collective gradweir_common)
    target_link_options(gradweir_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/client/library.map)
    set_property(TARGET gradweir_shared APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/client/library.map)
    if(NOT GRADWEIR_SANITIZE AND NOT GRADWEIR_SANITIZE_THREADS) # clang's sanitizers come with the program
        target_link_options(gradweir_shared PRIVATE -Wl,--no-undefined)
    endif()
    target_include_directories(gradweir_shared INTERFACE ${PROJECT_SOURCE_DIR}/client/include)
    set_target_properties(gradweir_shared PROPERTIES OUTPUT_NAME gradweir
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

    # The GPU's side and the CUDA runtime, whose symbols are hidden, go into the archive as well.
    set(gpu "")
    if(TARGET gradweir_gpu)
        set(gpu $<TARGET_FILE:gradweir_gpu> $<TARGET_FILE:gradweir_gpu_kernels> $<TARGET_FILE:CUDA::cudart_static>)
    endif()
    set(nccl "")
    if(BACKEND_NCCL)
        set(nccl $<TARGET_FILE:gradweir_nccl>)
    endif()
    set(archive ${CMAKE_BINARY_DIR}/libgradweir.a)
    set(whole ${CMAKE_CURRENT_BINARY_DIR}/gradweir_whole.o)
    add_custom_command(OUTPUT ${archive}
        COMMAND ${CMAKE_LINKER} -r -o ${whole} ${objects} --start-group $<TARGET_FILE:gradweir_collective>
            $<TARGET_FILE:gradweir_common> ${gpu} ${nccl} --end-group
        COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=gradweir_* ${whole}
        COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
        COMMAND ${CMAKE_AR} qcs ${archive} ${whole}
        DEPENDS ${ARGN} ${objects} gradweir_collective gradweir_common $<TARGET_NAME_IF_EXISTS:gradweir_gpu> ${nccl}
        COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(gradweir_static ALL DEPENDS ${archive})

    list(JOIN GRADWEIR_NEEDS " " GRADWEIR_NEEDS_TEXT)
    list(TRANSFORM GRADWEIR_NEEDS_LIBRARIES PREPEND -l OUTPUT_VARIABLE libraries)
    list(JOIN libraries " " GRADWEIR_LIBRARIES_TEXT)
    # From libdir, so that both packages are right wherever `cmake --install --prefix` puts them.
    file(RELATIVE_PATH GRADWEIR_INCLUDES ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
    set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gradweir)
    configure_file(${PROJECT_SOURCE_DIR}/client/gradweir.pc.in gradweir.pc @ONLY)
    configure_file(${PROJECT_SOURCE_DIR}/client/gradweirConfig.cmake.in gradweirConfig.cmake @ONLY)
    include(CMakePackageConfigHelpers)
    write_basic_package_version_file(gradweirConfigVersion.cmake COMPATIBILITY SameMinorVersion)

    install(TARGETS gradweir_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/include/gradweir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gradweir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gradweirConfig.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/gradweirConfigVersion.cmake DESTINATION ${package})
endfunction()
