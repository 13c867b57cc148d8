# The server in a container: no root, no development tools, a token for whoever asks from outside.
#
#   docker build -t contextpool .
#   docker run --rm -p 8000:8000 -e CONTEXTPOOL_TOKEN -v "$PWD/data:/data:ro" contextpool
#
# serves /data/run on /data/graph.tsv; other arguments of `contextpool serve` follow the image's name, such as
# `contextpool world --run hf://user/name`. With PIP_OPTIONS pip can be told where a CPU build of torch is found.

FROM python:3.11-slim AS build
WORKDIR /build
COPY constraints.txt ./
RUN python -m pip install --no-cache-dir -c constraints.txt hatchling
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m hatchling build --target wheel --directory /wheels

FROM python:3.11-slim
ARG PIP_OPTIONS=""
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN python -m pip install --no-cache-dir $PIP_OPTIONS -c /tmp/constraints.txt "$(ls /tmp/wheels/*.whl)[serve,hub]" \
    && rm -r /tmp/wheels /tmp/constraints.txt \
    && useradd --create-home --uid 10001 contextpool
USER contextpool
WORKDIR /home/contextpool
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["contextpool", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/data/graph.tsv", "--run", "/data/run"]
