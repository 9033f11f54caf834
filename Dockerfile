# stepline in a container; the networks' files are in the image, so that it runs without a network.
#   docker build -t stepline .
#   docker run --rm --network none --user "$(id -u)" -v "$PWD:/videos" stepline steps my_video.mp4
# With extras: --build-arg EXTRAS=[llm]. For a GPU of NVIDIA's, with its container toolkit on the machine:
#   docker build -t stepline:cuda --build-arg EXTRAS=[train] \
#     --build-arg BASE=nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04 .
#   docker run --rm --gpus all --network none --user "$(id -u)" -v "$PWD:/videos" stepline:cuda steps my_video.mp4 --device cuda
ARG BASE=debian:13-slim
FROM ${BASE}
ARG EXTRAS=

# Either base brings a Python newer than 3.11, at its own release's version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/stepline/bin:$PATH STEPLINE_WEIGHTS=/opt/weights STEPLINE_CACHE=/tmp/stepline OMP_WAIT_POLICY=PASSIVE
COPY . /tmp/source
RUN python3 -m venv /opt/stepline \
    && pip install --no-cache-dir -c /tmp/source/constraints.txt "/tmp/source${EXTRAS}" \
    && stepline weights get \
    && rm -rf /tmp/source

# Of a studio at port 8080, as compose.yaml starts it; a run of another command ends before the first check counts.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]

USER 10001
WORKDIR /videos
ENTRYPOINT ["stepline"]
CMD ["--help"]
