# The inspector, its adapters and nothing else: no compiler, no shell tools of ours, no root.
#   docker build -t inference-inspector .
#   docker run --rm --network host inference-inspector http://127.0.0.1:8080
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/inspector \
 && /opt/inspector/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt . \
 && /opt/inspector/bin/pip uninstall --yes --quiet pip \
 && /opt/inspector/bin/inspector --version

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="inference-inspector" \
      org.opencontainers.image.description="A read-only inspector for LLM inference servers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/inspector /opt/inspector
ENV PATH=/opt/inspector/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root. Nothing is written: a read-only root file system is fine.
USER 65532:65532
WORKDIR /
EXPOSE 9836
ENTRYPOINT ["inspector", "serve"]
