# The image from a public base, for those with a container runtime. `make image` makes one without; the tests run that.
# `make dockerfile-check` builds this one, on a stand-in of the base.
# The base is an argument, so that a release can pin it: `.ci/pin-base` resolves its digest, and the release workflow builds on
# that digest and publishes this file with it. Nothing here names a digest that was not fetched.
ARG BASE=docker.io/library/python:3.13-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY src src
COPY sandbox sandbox
# The lock holds hashes of everything, development tools included: all of it here, to know which part the wheel needs.
# pip checks hashes of everything in a call or of nothing, and our own wheel has none: it comes last, alone.
RUN python -m venv /all \
 && /all/bin/pip install --quiet --require-hashes --requirement requirements.lock \
 && /all/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /all/bin/pip install --quiet --no-deps /wheels/*.whl \
 && /all/bin/python -m hostler.ship.lock requirements.lock > /runtime.lock \
 && pip install --quiet --no-deps --target /opt/hostler/site --require-hashes --requirement /runtime.lock \
 && pip install --quiet --no-deps --target /opt/hostler/site /wheels/*.whl \
 && cd /opt/hostler/site && rm -rf hostler/sandbox hostler/ship hostler/cli/sandbox.py hostler/cli/demo.py bin \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/hostler/site

FROM ${BASE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/hostler/site /opt/hostler/site
LABEL org.opencontainers.image.title=hostler org.opencontainers.image.licenses=Apache-2.0
ENV PYTHONPATH=/opt/hostler/site PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["python3", "-m", "hostler"]
CMD ["run"]
