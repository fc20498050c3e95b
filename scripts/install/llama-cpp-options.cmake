# CMake includes this right after project("llama.cpp"), because build.py sets
# CMAKE_PROJECT_llama.cpp_INCLUDE. llama-cpp-python's own CMakeLists.txt has forced both options
# on by then, so they are forced here.

# Helpers of llama.cpp's command line tools: the bindings do not use them, a third of the build.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)

if(DEFINED GGUF_WORKER_METAL)
    set(GGML_METAL ${GGUF_WORKER_METAL} CACHE BOOL "" FORCE)
endif()

# Where this GCC's _tile_loadconfig lets stores be removed as dead, AMX's kernels get one that does
# not; the header says why.
set(GGUF_WORKER_AMX ${CMAKE_CURRENT_LIST_DIR}/amx-tile-config)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    execute_process(
        COMMAND ${CMAKE_C_COMPILER} -O3 -mamx-tile -S -o - ${GGUF_WORKER_AMX}-probe.c
        OUTPUT_VARIABLE GGUF_WORKER_ASSEMBLY RESULT_VARIABLE GGUF_WORKER_FAILED ERROR_QUIET)
    if(GGUF_WORKER_FAILED EQUAL 0 AND NOT GGUF_WORKER_ASSEMBLY MATCHES "%dil|%edi")
        message(STATUS "gguf-worker: AMX's tile configuration is mended for this GCC")
        # Its arguments are read at the end of this folder, when ggml's folder is known.
        cmake_language(DEFER CALL set_source_files_properties
            ${CMAKE_CURRENT_SOURCE_DIR}/ggml/src/ggml-cpu/amx/mmq.cpp DIRECTORY ggml/src
            PROPERTIES COMPILE_OPTIONS "-include;${GGUF_WORKER_AMX}.h")
    endif()
endif()
