# An image for any x86-64 or ARM64 CPU; the worker in it is no root and needs no compiler.
#
#   docker build --tag gguf-worker .
#   docker run --publish 127.0.0.1:8080:8080 --volume ~/models:/models:ro gguf-worker --model /models/FILE.gguf
#
# Without --model it serves the demo model. Keys: --env LLAMA_API_KEY, or --api-key-file with a
# mounted file. Without a key, other containers that ask for http://worker:8080 need
# --allowed-hosts worker.

FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make python3-venv
COPY . /source
WORKDIR /source
# With the library that `make release` left in dist/ it takes seconds; else it compiles, and the
# cache spares the next build that.
RUN --mount=type=cache,target=/root/.cache \
    if ls dist/llama_cpp_python-*.whl; then python3 -m venv /opt/pip && /opt/pip/bin/pip wheel --no-deps --wheel-dir dist . ; \
    else make wheel; fi
# Under the path where it will be, because scripts in a virtual environment name it. Nothing here
# imports Litestar's generator of examples, 27 MB, or the packages' tests, 19 MB.
RUN python3 -m venv /opt/worker && \
    /opt/worker/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt dist/*.whl && \
    /opt/worker/bin/pip uninstall --yes faker polyfactory pip && \
    find /opt/worker/lib -depth \( -name tests -o -name '*.pyi' -o -name '*.[ach]' -o -name '*.pyx' -o -name '*.pxd' \
        -o -path '*/llama_cpp/include' -o -path '*/llama_cpp/server' -o -path '*/numpy/f2py' -o -path '*/numpy/testing' \) \
        -exec rm -r {} + && \
    /opt/worker/bin/python -m compileall -q -x 'pygments/lexers|huggingface_hub/inference' /opt/worker/lib

FROM debian:trixie-slim
RUN apt-get update && \
    apt-get install --yes --no-install-recommends libstdc++6 python3 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home worker
COPY --from=build /opt/worker /opt/worker
USER 10001
ENV PATH=/opt/worker/bin:$PATH LLAMA_ARG_HOST=0.0.0.0 LLAMA_ARG_PORT=8080
EXPOSE 8080
# It needs no key. The worker says "ok" once it is ready, and while it drains it does not.
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s CMD ["python", "-c", \
    "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"LLAMA_ARG_PORT\"]}/health', timeout=2)"]
ENTRYPOINT ["worker", "serve"]
