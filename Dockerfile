# The inspector, its adapters and nothing else: no compiler, no package installer of ours, no root.
#   docker build --tag inference-inspector .
#   docker run --rm inference-inspector check http://192.0.2.7:8080
#   docker run --network host --read-only --cap-drop ALL inference-inspector serve http://127.0.0.1:8080
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
# What is installed beside the inspector changes seldom: these layers outlive a change of its source.
COPY pyproject.toml constraints.txt ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --constraint constraints.txt hatchling
RUN python -m venv --without-pip /opt/inspector \
 && python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > /opt/build/requirements.txt \
 && /opt/build/bin/pip --python /opt/inspector/bin/python install --constraint constraints.txt --requirement /opt/build/requirements.txt
COPY README.md LICENSE ./
COPY inspector inspector
COPY adapters adapters
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /opt/build/wheels . \
 && /opt/build/bin/pip --python /opt/inspector/bin/python install --no-index --no-deps /opt/build/wheels/*.whl \
 && /opt/build/bin/pip --python /opt/inspector/bin/python check \
 && /opt/inspector/bin/inspector --version

FROM python:${PYTHON}-slim
# For a build that is kept: --build-arg VERSION=… --build-arg REVISION=$(git rev-parse HEAD)
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="inference-inspector" \
      org.opencontainers.image.description="A read-only inspector for LLM inference servers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/inspector /opt/inspector
ENV PATH=/opt/inspector/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root. Nothing is written: a read-only root file system is fine.
USER 65532:65532
WORKDIR /
EXPOSE 9836
# Not through urllib, which would ask a proxy of the environment. Kubernetes does not look at this; it has its own probes.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import http.client as http; c = http.HTTPConnection('127.0.0.1', 9836, timeout=4); c.request('GET', '/-/healthy'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["inspector"]
CMD ["serve"]
