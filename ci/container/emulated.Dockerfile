# The gate without a GPU. Build in the root of the checkout: docker build -f ci/container/emulated.Dockerfile -t iris-gate .
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ git && rm -rf /var/lib/apt/lists/*
WORKDIR /harness
COPY . .
# The index of PyTorch's CPU build, from pytorch.org (Start locally, compute platform CPU); without it, CUDA's libraries come too.
ARG PIP_EXTRA_INDEX_URL
RUN python -m pip install --no-cache-dir -c constraints-ci.txt -e '.[suite]'
RUN useradd --create-home runner && git config --system --add safe.directory '*'
USER runner
WORKDIR /work
ENTRYPOINT ["iris-harness"]
CMD ["gate", "--help"]
