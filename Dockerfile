# Text that nobody has built: where it was written there was no container runtime. `make wheel` and
# the installation with pip were run by hand outside of one; the first build may need a correction.
#
#   docker build --tag gguf-worker .
#   docker run --publish 127.0.0.1:8080:8080 --volume ~/models:/models:ro gguf-worker --model /models/FILE.gguf
#
# The image runs on any x86-64 or ARM64 CPU of its architecture. Without --model it serves the demo
# model. Keys: --env LLAMA_API_KEY, or --api-key-file with a mounted file. Without a key, other
# containers that ask for http://worker:8080 need --allowed-hosts worker.

FROM python:3.12-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
COPY . /source
WORKDIR /source
RUN make wheel
# Under the path where it will be, because scripts in a virtual environment name it.
RUN python -m venv /opt/worker && \
    /opt/worker/bin/pip install --no-cache-dir --constraint constraints.txt --find-links dist dist/gguf_worker-*.whl && \
    /opt/worker/bin/python -m compileall -q /opt/worker/lib

FROM python:3.12-slim-bookworm
COPY --from=build /opt/worker /opt/worker
RUN useradd --uid 10001 --create-home worker
USER 10001
ENV PATH=/opt/worker/bin:$PATH LLAMA_ARG_HOST=0.0.0.0 LLAMA_ARG_PORT=8080
EXPOSE 8080
# It needs no key. The worker says "ok" once it is ready, and while it drains it does not.
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s CMD ["python", "-c", \
    "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"LLAMA_ARG_PORT\"]}/health', timeout=2)"]
ENTRYPOINT ["worker", "serve"]
