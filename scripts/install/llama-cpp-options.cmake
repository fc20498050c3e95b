# CMake includes this right after project("llama.cpp"), because build.py sets
# CMAKE_PROJECT_llama.cpp_INCLUDE. llama-cpp-python's own CMakeLists.txt has forced both options
# on by then, so they are forced here.

# Helpers of llama.cpp's command line tools: the bindings do not use them, a third of the build.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)

if(DEFINED GGUF_WORKER_METAL)
    set(GGML_METAL ${GGUF_WORKER_METAL} CACHE BOOL "" FORCE)
endif()
