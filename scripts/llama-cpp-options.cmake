# CMake includes this right after project("llama.cpp") (CMAKE_PROJECT_<name>_INCLUDE, set by
# install.py), which is after llama-cpp-python's own CMakeLists.txt has forced these two on.

# Helpers of llama.cpp's command line tools: the bindings do not use them, a third of the build.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)

if(DEFINED GGUF_WORKER_METAL)
    set(GGML_METAL ${GGUF_WORKER_METAL} CACHE BOOL "" FORCE)
endif()
