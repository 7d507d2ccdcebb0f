# movlr-jax in a container, by the two commands of the README.
#
#   docker build -t movlr-jax .                               CPU
#   docker build -t movlr-jax:cuda --build-arg VARIANT=cuda .  NVIDIA GPU; run with --gpus all
#   docker run --rm -v "$PWD/runs:/work/runs" movlr-jax search +task=bottle_pour
#
# tests/cluster/container_steps.sh runs the same steps in a clean chroot.
ARG VARIANT=cpu

FROM debian:bookworm-slim AS base
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 \
    VIRTUAL_ENV=/opt/movlr PATH=/opt/movlr/bin:$PATH XDG_CACHE_HOME=/work/.cache
# libegl1, libgl1-mesa-dri, libopengl0: films; git: the source of models that are downloaded
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git libegl1 libgl1-mesa-dri libopengl0 python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/movlr
COPY . /opt/movlr-jax
WORKDIR /opt/movlr-jax

FROM base AS cpu
RUN pip install -e '.[sweep,ray,tracking]'

FROM base AS cuda
# the wheels of jax[cuda12] bring CUDA; only the driver comes from the machine
RUN pip install -e '.[warp,sweep,ray,tracking]' && pip install 'jax[cuda12]>=0.9.2,<0.12'
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics

# hadolint ignore=DL3006
FROM ${VARIANT}
RUN useradd --uid 1000 --create-home --home-dir /work movlr && mkdir -p /work/runs && chown -R movlr: /work
USER 1000
WORKDIR /work
ENTRYPOINT ["movlr-jax"]
CMD ["doctor"]
