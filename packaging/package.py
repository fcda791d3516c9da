# Spack's recipe, for Spack 1.0 and later. `spack spec` of Spack 1.2.0.dev0 resolves it; it was not built with Spack.
# Put it into a repository of your own (spack repo create; packages/copse/package.py). Then, in the source's folder:
#   spack dev-build copse@main
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Copse(MakefilePackage, CudaPackage):
    """A compiler for collective communication: provably optimal schedules of collectives on GPU clusters, as plans
    that it proves and runs, and as files for NCCL, RCCL, MSCCL and MSCCL++."""

    license("Apache-2.0")

    version("main")

    variant("mpi", default=True, description="run plans between processes, over Open MPI")
    variant("ucx", default=False, description="run plans between processes, over UCX")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("gmake", type="build")
    depends_on("cjson")
    depends_on("libxml2")
    depends_on("gmp")
    depends_on("libmd")
    depends_on("zlib-api")
    depends_on("glpk")
    depends_on("openmpi", when="+mpi")
    depends_on("ucx", when="+ucx")

    def _options(self):
        options = ["PREFIX={0}".format(self.prefix)]
        if self.spec.satisfies("+cuda"):
            options.append("NVCC={0}".format(self.spec["cuda"].prefix.bin.nvcc))
            if self.spec.variants["cuda_arch"].value[0] != "none":
                options.append("CUDA_ARCHS={0}".format(" ".join(self.spec.variants["cuda_arch"].value)))
        else:
            options.append("NVCC=")
        if self.spec.satisfies("~mpi"):
            options.append("HAVE_MPI=")
        if self.spec.satisfies("~ucx"):
            options.append("HAVE_UCX=")
        return options

    def build(self, spec, prefix):
        make("all", *self._options())

    def install(self, spec, prefix):
        make("install", *self._options())
