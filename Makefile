# copse: one Makefile, non-recursive. Quiet by default; V=1 shows the full commands.
#
#   make                build/copse, build/libcopse.so, build/libcopse.a, build/libcopse-nccl.so,
#                       build/libnccl-tuner-copse.so, build/libcopse-mpi.so, build/libcopse-ucx.so
#   make check          every test, plain and under ASan and UBSan; threads under TSan
#   make coverage       lines of src that the tests reach, by folder
#   make demo           the main job, end to end
#   make quality        schedules of topologies/ compared with schedules/quality.txt
#   make bench          speed, measured; make bench-mpi: between hosts, beside Open MPI
#   make check-gpu      right results on this machine's GPUs; make bench-gpu: their speed;
#                       make gpu: both, the most valuable parts first (tests/gpu/README.md);
#                       make gpu-first: what never ran on a GPU, in ten minutes
#   make lint           includes, symbols, sizes; options and links of the documentation
#   make install        PREFIX=/usr/local LIBDIR=PREFIX/lib DESTDIR=
#
# VARIANT=release|asan|tsan|coverage picks a set of flags and a folder under build/.

VARIANT ?= release
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=
CC      ?= cc
CXX     ?= g++
AR      ?= ar
PKG_CONFIG ?= pkg-config
V       ?= 0
Q       := $(if $(filter 0,$(V)),@,)
say      = $(if $(filter 0,$(V)),@echo '  $(1)  $(2)',)

VERSION := $(shell sed -n 's/^.define COPSE_VERSION_STRING "\(.*\)"/\1/p' include/copse/copse.h)
SOMAJOR := 0

# ---- tools and libraries ----------------------------------------------------------
LIB_PACKAGES := libcjson libxml-2.0 gmp libmd zlib
NEEDS_BUILD  := $(filter-out clean install-% bootstrap,$(or $(MAKECMDGOALS),all))
ifneq ($(NEEDS_BUILD),)
MISSING := $(strip $(foreach p,$(LIB_PACKAGES),$(shell $(PKG_CONFIG) --exists $(p) || echo $(p))))
ifneq ($(MISSING),)
$(error missing: $(MISSING). Run ./scripts/bootstrap, which installs what copse builds with)
endif
endif
LIB_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(LIB_PACKAGES) 2>/dev/null)
LIB_LIBS   := $(shell $(PKG_CONFIG) --libs $(LIB_PACKAGES) 2>/dev/null) -lglpk -lm
CHECK_CFLAGS := $(shell $(PKG_CONFIG) --cflags check 2>/dev/null) # once: hundreds of tests take it

# CUDA, where nvcc is there: on the PATH, or NVCC=... ; NVCC= builds without. CUDA_ARCHS: what
# the GPU code is compiled for; the last one's PTX serves what is newer.
NVCC ?= $(shell command -v nvcc)
CUDA_ARCHS ?= 80 90 100
ifeq ($(VARIANT),release)
HAVE_CUDA := $(if $(NVCC),1)
endif
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
CUDA_LIBDIRS := $(wildcard $(foreach d,lib64 lib targets/x86_64-linux/lib,$(CUDA_HOME)/$(d)))
CUDA_LIBS := $(if $(HAVE_CUDA),$(CUDA_LIBDIRS:%=-L%) -lcudart_static -ldl -lrt -lstdc++)
# CUDA_QUICK=1: slow GPU code in a quarter of the time, to see that it compiles (scripts/check).
NVCC_QUICK := $(if $(and $(NVCC),$(CUDA_QUICK)),$(shell $(NVCC) --help | grep -q Ofast-compile && echo --Ofast-compile=max))
# Without contraction of a * b + c: the GPU's bits are the CPU's.
NVCC_FLAGS = -std=c++17 -O3 --fmad=false $(NVCC_QUICK) $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
  -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) --threads 2 \
  -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-pthread -ccbin $(lastword $(filter-out -%,$(CXX))) # not ccache

# MPI, where Debian's or another Open MPI is there; HAVE_MPI= builds without.
HAVE_MPI ?= $(shell $(PKG_CONFIG) --exists ompi-c && echo 1)
MPI_CFLAGS = $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags ompi-c))
MPI_LIBS   = $(shell $(PKG_CONFIG) --libs ompi-c)
# UCX, for processes without MPI; HAVE_UCX= builds without.
HAVE_UCX ?= $(shell $(PKG_CONFIG) --exists ucx && echo 1)
UCX_CFLAGS = $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags ucx))
UCX_LIBS   = $(shell $(PKG_CONFIG) --libs ucx)

CXX_WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wpointer-arith -Wwrite-strings $(if $(WERROR),-Werror)
WARNINGS := $(CXX_WARNINGS) -Wstrict-prototypes -Wmissing-prototypes
CPPFLAGS_ALL = -D_GNU_SOURCE -Iinclude -Isrc $(LIB_CFLAGS) $(CPPFLAGS)
# Other projects' data, which some tests compare with where it is there: a folder with nccl/data, beside this one.
OUTSIDE ?= $(patsubst %/nccl/data,%,$(firstword $(wildcard ../*/nccl/data)))
# -g1: functions and lines, enough for sanitizers, backtraces and perf, at two thirds of -g's
# compile time; CFLAGS=-g CXXFLAGS=-g for a debugger that shows variables.
CFLAGS_ALL   = -std=c11 -g1 -fPIC -fvisibility=hidden -pthread $(WARNINGS) $(VARIANT_FLAGS) $(CFLAGS)
CXXFLAGS_ALL = -std=c++17 -g1 -fPIC -fvisibility=hidden -pthread $(CXX_WARNINGS) $(VARIANT_FLAGS) $(CXXFLAGS)
LDFLAGS_ALL  = -pthread $(VARIANT_LD) $(LDFLAGS)

ifeq ($(VARIANT),release)
  OUT := build
  VARIANT_FLAGS := -O2
  # The command, pictures, readers and writers of files and formats take no time at run time, and three fifths of it to
  # compile.
  QUIET := $(wildcard $(addprefix src/,cli/*.c cli/*/*.c view/*.c topology/input/*.c nccl/*.c nccl/*/*.c \
    codegen/msccl/*.c codegen/mscclpp/*.c))
else ifeq ($(VARIANT),asan)
  OUT := build/asan
  # -Og: two thirds of -O1's compile time, which is more than the tests lose by it.
  VARIANT_FLAGS := -Og -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  # A half of the compile time is for these, and ASan sees most accesses that follow.
  VARIANT_FLAGS += $(if $(filter-out 0,$(COPSE_TEST_ALL)),,-fno-sanitize=null,object-size,pointer-overflow,alignment,bounds)
  # A third of the tests' own is for UBSan, which is to watch copse.
  CALLS := --param asan-instrumentation-with-call-threshold=0 # less to compile, slower
  TEST_FLAGS := -fno-sanitize=undefined $(CALLS)
  VARIANT_LD := -fsanitize=address,undefined
  PROGRAM_LD := -no-pie # thousands of processes: a quarter fewer pages to touch at the start of each
  # What these programs spend little time in compiles in half the time without optimization and with calls in place of the
  # checks' own code; by COPSE_TEST_ALL, where all programs run, they are as the others.
  COLD := $(if $(filter-out 0,$(COPSE_TEST_ALL)),,$(filter-out src/predict/simulate% src/schedule/schedule.c \
    src/schedule/loads.c,$(wildcard $(addprefix src/,cli/*.c cli/*/*.c view/*.c nccl/*.c nccl/*/*.c dropin/*.c api/*.c \
    predict/*.c schedule/*.c schedule/*/*.c $(addprefix solver/,alltoall/*.c joint/*.c online/*.c placement/*.c rings/*.c) \
    $(addprefix codegen/,lower/*.c msccl/*.c mscclpp/*.c) runtime/comm/*.c runtime/transport/*.c))))
else ifeq ($(VARIANT),tsan)
  OUT := build/tsan
  VARIANT_FLAGS := -Og -fsanitize=thread
  VARIANT_LD := -fsanitize=thread
else ifeq ($(VARIANT),coverage)
  OUT := build/coverage
  VARIANT_FLAGS := -Og --coverage -fprofile-update=atomic
  VARIANT_LD := --coverage
else
  $(error unknown VARIANT '$(VARIANT)': release, asan, tsan or coverage)
endif
OBJ := $(OUT)/obj

# ---- what is built ------------------------------------------------------------------
# Everything under src/ is in libcopse, but for the program and its pictures, the drop-in, NCCL's tuner, and the libraries of
# their own over MPI and UCX.
LIB_SRC  := $(filter-out src/cli/% src/view/% src/dropin/% src/nccl/plugin/% src/runtime/mpi/% src/runtime/ucx/%,$(wildcard src/*/*.c src/*/*/*.c))
CLI_SRC  := $(wildcard src/cli/*.c src/cli/*/*.c src/view/*.c)
TEST_SRC := $(wildcard tests/*/test_*.c)
TEST_LIB := $(wildcard tests/support/*.c)
CUDA_SRC := $(if $(HAVE_CUDA),$(wildcard src/runtime/*/*.cu))
CUDA_OBJ := $(CUDA_SRC:%.cu=$(OBJ)/%.cu.o)
# Sources without a kernel and the typed launch are plain C++, not to be compiled once per architecture.
CUDA_HOST := $(if $(CUDA_SRC),$(shell grep -LE '__global__|__device__|cudaLaunchKernelEx' $(CUDA_SRC)))
# CUDA's first: one of them takes longest, and would be alone at the end.
LIB_OBJ  := $(CUDA_OBJ) $(patsubst %.c,$(OBJ)/%.o,$(if $(HAVE_CUDA),$(filter-out src/runtime/gpu/gpu_none.c,$(LIB_SRC)),$(LIB_SRC)))
# Code without threads and atomics, where TSan has nothing to see: its build takes the plain one's objects. So do both
# sanitizers' of the tests' second computations. By COPSE_TEST_ALL both watch everything.
ifneq ($(if $(filter-out 0,$(COPSE_TEST_ALL)),,$(filter asan tsan,$(VARIANT))),)
PLAIN_SRC := $(if $(filter tsan,$(VARIANT)),$(filter-out $(wildcard src/predict/simulate*.c) src/predict/event_queue.c src/solver/network/%, \
  $(filter $(addprefix src/,nccl/% topology/% codegen/% verify/% schedule/% predict/% solver/%),$(LIB_SRC))))
PLAIN_TEST_SRC := $(filter $(patsubst %,tests/support/%.c,fabric \
  moe_driver msccl_model mutant oracle oracle_groups oracle_trees plain_simulation plan_algorithms plan_builder random random_topology \
  rounds_backend sim_fabric symmetric_topology),$(TEST_LIB))
PLAIN_OBJ := $(patsubst %.c,build/obj/%.o,$(PLAIN_SRC) $(PLAIN_TEST_SRC))
LIB_OBJ  := $(filter-out $(PLAIN_SRC:%.c=$(OBJ)/%.o),$(LIB_OBJ)) $(PLAIN_SRC:%.c=build/obj/%.o)
$(PLAIN_OBJ): VARIANT_FLAGS := -O2
$(PLAIN_OBJ): build/obj/%.o: %.c
	$(call say,CC,$< (plain))
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(if $(filter tests/%,$<),-Itests -DCOPSE_TEST_OUTSIDE='"$(OUTSIDE)"' $(CHECK_CFLAGS)) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
-include $(PLAIN_OBJ:.o=.d)
endif
NCCL_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(wildcard src/dropin/*.c))
TUNER_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(wildcard src/nccl/plugin/*.c))
MPI_OBJ  := $(patsubst %.c,$(OBJ)/%.o,$(wildcard src/runtime/mpi/*.c))
UCX_OBJ  := $(patsubst %.c,$(OBJ)/%.o,$(wildcard src/runtime/ucx/*.c))
CLI_OBJ  := $(CLI_SRC:%.c=$(OBJ)/%.o) $(OBJ)/report_assets.o $(OBJ)/examples.o
TEST_LIB_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(filter-out $(PLAIN_TEST_SRC),$(TEST_LIB))) $(PLAIN_TEST_SRC:%.c=build/obj/%.o)
# The CUDA runtime on threads of the CPU (tests/emulation), and copse's CUDA sources built for it.
# The emulation is one source for the compiler: its parts instantiate the same templates, most of their compile time.
EMULATION_SRC := $(filter-out tests/emulation/test_%,$(wildcard tests/emulation/*.cc))
EMULATED_SRC  := $(filter-out tests/cuda/test_%,$(wildcard tests/cuda/*.cc)) $(wildcard src/runtime/*/*.cu)
EMULATED_OBJ  := $(OBJ)/emulated/emulation.o $(patsubst %,$(OBJ)/emulated/%.o,$(basename $(EMULATED_SRC)))
EMULATED_TEST := $(wildcard tests/*/test_*.cc)
TESTS    := $(TEST_SRC:tests/%.c=$(OUT)/tests/%) $(EMULATED_TEST:tests/%.cc=$(OUT)/tests/%)
# What `make check` runs of them: each in the one build where it shows most.
# - Under TSan: those that use threads.
# - Plain: those that replace malloc, those that start copse hundreds of times, where ASan would take most of the time to
#   start, those that compute for seconds (HEAVY: 3 CPU seconds or more under ASan, a third of that here), and emulated GPUs,
#   most of whose time under a sanitizer is its own: to build them for TSan takes as long as to run them.
# - Under ASan: all others: parsers, hostile input and every option's parsing (HOSTILE), the API, the runtime, NCCL, and
#   of solver, schedule and codegen what is quick. Plain too where a program has cases that only the plain build takes.
# COPSE_TEST_ALL: plain and ASan run all, TSan all with threads. scripts/check_includes looks for tests that no build runs.
HOSTILE  := cli/test_odd_inputs cli/test_options cli/test_guesses cli/test_draw
COMMANDS := $(filter-out $(HOSTILE),$(patsubst tests/%.c,%,$(wildcard tests/cli/test_*.c tests/docs/test_*.c)) \
              api/test_python audit/test_audit audit/test_causes gpu/test_run_gpu runtime/test_mpi tune/test_tune)
HEAVY    := $(addprefix schedule/test_,baseline bound_at broken_clusters candidates changes compact doubling free_shares \
              groups heights in_network place predict sizes solve) \
            $(addprefix solver/test_,forest joint online optimum rings) \
            $(addprefix codegen/test_,lower_packets msccl mscclpp) rings/test_best
PLAIN_TOO := $(patsubst tests/%.c,%,$(shell \
              grep -lE 'if .(COPSE_TEST_RESULTS|!COPSE_TEST_SANITIZED)|failing_malloc|COUNTS_ALLOCATIONS' $(TEST_SRC))) runtime/test_packets_threads
EMULATED := $(EMULATED_TEST:tests/%.cc=$(OUT)/tests/%)
THREADED := $(filter %_threads,$(TESTS))
ifneq ($(filter-out 0,$(COPSE_TEST_ALL)),)
CHECKED := $(if $(filter asan,$(VARIANT)),$(filter-out %_out_of_memory,$(TESTS)),$(TESTS))
CHECKED := $(if $(filter tsan,$(VARIANT)),$(foreach t,$(TESTS),$(if $(strip $(foreach w,threads emulation cuda,$(findstring $(w),$(t)))),$(t))),$(CHECKED))
else ifeq ($(VARIANT),coverage)
CHECKED := $(TESTS)
else ifeq ($(VARIANT),tsan)
CHECKED := $(THREADED)
else ifeq ($(VARIANT),asan)
CHECKED := $(filter-out %_out_of_memory $(THREADED) $(EMULATED) $(addprefix $(OUT)/tests/,$(COMMANDS) $(HEAVY)),$(TESTS))
else
CHECKED := $(sort $(addprefix $(OUT)/tests/,$(filter-out $(HOSTILE),$(PLAIN_TOO)) $(COMMANDS) $(HEAVY)) $(EMULATED))
endif

.SECONDARY: # no object is removed once its program is linked
COMPLETIONS := $(OUT)/copse.bash $(OUT)/copse.zsh $(OUT)/copse.fish
.PHONY: all tests check check-tests coverage quality demo demo-repair bench bench-mpi lint format install uninstall clean bootstrap
all: $(OUT)/copse $(OUT)/copse.1 $(COMPLETIONS) $(OUT)/libcopse.so $(OUT)/libcopse.a $(OUT)/libcopse-nccl.so \
     $(OUT)/libnccl-tuner-copse.so $(OBJ)/.without-cuda $(if $(HAVE_MPI),$(OUT)/libcopse-mpi.so,$(OBJ)/.without-mpi) \
     $(if $(HAVE_UCX),$(OUT)/libcopse-ucx.so,$(OBJ)/.without-ucx)

# Says once that the GPU parts are left out.
$(OBJ)/.without-cuda: $(OBJ)/.flags
	$(Q)$(if $(HAVE_CUDA)$(filter-out release,$(VARIANT)),:,echo 'no nvcc: copse is built without its GPU parts, everything else is there')
	$(Q)touch $@

$(OBJ)/.without-mpi: $(OBJ)/.flags
	$(Q)echo 'no Open MPI: copse is built without its mpi backend, everything else is there'
	$(Q)touch $@

$(OBJ)/.without-ucx: $(OBJ)/.flags
	$(Q)echo 'no UCX (libucx-dev): copse is built without its ucx backend, everything else is there'
	$(Q)touch $@

# A change of flags rebuilds what they touch.
FLAGS_TEXT := $(if $(HAVE_CUDA),$(NVCC) $(NVCC_FLAGS)) $(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(CXX) $(CXXFLAGS_ALL) $(LDFLAGS_ALL)
$(OBJ)/.flags: FORCE
	$(Q)mkdir -p $(@D); echo '$(FLAGS_TEXT)' | cmp -s - $@ || echo '$(FLAGS_TEXT)' >$@
.PHONY: FORCE # else .SECONDARY, above, makes a file of it that needs no making
FORCE:

# Compiling a test takes longer than running it: without optimization, but for tests/support, which computes.
$(OBJ)/%.o: %.c $(OBJ)/.flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(if $(filter tests/%,$<),-Itests -DCOPSE_TEST_OUTSIDE='"$(OUTSIDE)"' $(CHECK_CFLAGS)) $(CFLAGS_ALL) $(if $(filter $<,$(TEST_SRC)),-O0) $(if $(filter $<,$(COLD)),-O0 $(CALLS)) $(if $(filter $<,$(QUIET)),-O1) $(if $(filter tests/%,$<),$(TEST_FLAGS)) -MMD -MP -c $< -o $@

# Where copse looks for its libraries if they are not beside the program.
$(OBJ)/src/cli/main.o: CPPFLAGS_ALL += -DCOPSE_LIBDIR='"$(LIBDIR)"'

# Styles of pictures and of the report, and its script, are files of their own, made into C strings.
$(OBJ)/report_assets.c: src/view/draw.css src/view/report.css src/view/report.js
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q){ printf '#include "view/%s.h"\n' draw report; for f in $^; do \
	  echo "const char copse_$$(basename $$f | tr . _)[] ="; \
	  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $$f; echo ';'; done; } >$@
# So are the examples of input files that need no other file.
EXAMPLES := $(filter-out %-slurm.json %-ibnetdiscover.json,$(wildcard docs/examples/*.json)) docs/examples/groups.txt
$(OBJ)/examples.c: $(EXAMPLES)
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q){ printf '#include <stddef.h>\n#include "cli/examples.h"\nconst struct copse_example copse_examples[] = {\n'; \
	  for f in $(EXAMPLES); do printf '{"%s",\n' $$(basename $${f%.*}); \
	  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $$f; echo '},'; done; \
	  printf '{NULL, NULL}};\nconst char *const copse_example_kinds[] = {\n'; \
	  for f in $(EXAMPLES); do printf '"%s", ' $$(basename $${f%.*}); done; echo 'NULL};'; } >$@
$(OBJ)/report_assets.o $(OBJ)/examples.o: $(OBJ)/%.o: $(OBJ)/%.c $(OBJ)/.flags
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

$(OBJ)/%.cu.o: %.cu $(OBJ)/.flags
	$(call say,NVCC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(if $(filter $<,$(CUDA_HOST)),-x c++) -Iinclude -Isrc -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(OUT)/libcopse.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) qcs $@ $^

# A thread may still be in it when its communicators are gone (src/base/parallel.h): dlclose leaves it.
STAYS := -Wl,-z,nodelete
$(OUT)/libcopse.so: $(LIB_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libcopse.so.$(SOMAJOR) $(STAYS) -Wl,--no-undefined -Wl,--exclude-libs,ALL -o $@ $^ $(LIB_LIBS) $(CUDA_LIBS)
	$(Q)ln -sf libcopse.so $(OUT)/libcopse.so.$(SOMAJOR)

# The drop-in for NCCL: one file to preload. copse is inside, and only NCCL's names are visible,
# so that it and a libcopse.so in the same process are strangers. A preloaded library comes into
# every process of a job: it should need nothing but the C library (and libmd if that has no archive).
STATIC_MD := $(filter /%,$(shell $(CC) -print-file-name=libmd.a))
NCCL_CUDA_LIBS := $(if $(CUDA_LIBS),$(CUDA_LIBS:-lstdc++=-l:libstdc++.a) -static-libgcc)
$(OUT)/libcopse-nccl.so: $(NCCL_OBJ) $(OUT)/libcopse.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libcopse-nccl.so.$(SOMAJOR) $(STAYS) -Wl,--no-undefined \
	  -Wl,--exclude-libs,ALL -Wl,--as-needed -o $@ $^ $(STATIC_MD) $(LIB_LIBS) $(NCCL_CUDA_LIBS) -ldl
	$(Q)ln -sf libcopse-nccl.so $(OUT)/libcopse-nccl.so.$(SOMAJOR)

# The tuner plugin for NCCL, by the name that NCCL_TUNER_PLUGIN=copse finds. Only NCCL's names are visible.
$(OUT)/libnccl-tuner-copse.so: $(TUNER_OBJ) $(OUT)/libcopse.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -Wl,--exclude-libs,ALL -Wl,--as-needed \
	  -o $@ $^ $(STATIC_MD) $(LIB_LIBS) -ldl

# MPI in a file of its own, so that nothing else needs it; it needs nothing of copse.
$(MPI_OBJ): CPPFLAGS += $(MPI_CFLAGS)
$(OUT)/libcopse-mpi.so: $(MPI_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libcopse-mpi.so.$(SOMAJOR) -o $@ $^ $(MPI_LIBS)
	$(Q)ln -sf libcopse-mpi.so $(OUT)/libcopse-mpi.so.$(SOMAJOR)

# So is UCX.
$(UCX_OBJ): CPPFLAGS += $(UCX_CFLAGS)
$(OUT)/libcopse-ucx.so: $(UCX_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libcopse-ucx.so.$(SOMAJOR) -o $@ $^ $(UCX_LIBS)
	$(Q)ln -sf libcopse-ucx.so $(OUT)/libcopse-ucx.so.$(SOMAJOR)

$(OUT)/copse: $(CLI_OBJ) $(OUT)/libcopse.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(PROGRAM_LD) -o $@ $(CLI_OBJ) $(OUT)/libcopse.a $(LIB_LIBS) $(CUDA_LIBS)

# The manual page's options and the completion of shells are the program's own tables.
$(OUT)/copse.1: scripts/copse.1.in $(OUT)/copse
	$(call say,GEN,$@)
	$(Q)$(OUT)/copse help --man >$@.options
	$(Q)sed -e 's|@VERSION@|$(VERSION)|' -e '/^@OPTIONS@$$/{r $@.options' -e 'd}' $< >$@; rm $@.options
$(COMPLETIONS): $(OUT)/copse.%: $(OUT)/copse
	$(call say,GEN,$@)
	$(Q)$(OUT)/copse help --completion $* >$@

# ---- tests --------------------------------------------------------------------------
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)
COMMA := ,
# There are hundreds of test programs: the quickest linker that is there.
LD_TESTS := $(addprefix -fuse-ld=,$(firstword $(foreach l,lld gold,$(if $(shell command -v ld.$(l)),$(l)))))
$(OUT)/tests/%: private LDFLAGS_ALL += $(LD_TESTS) $(if $(filter %lld,$(LD_TESTS)),-Wl$(COMMA)-O0$(COMMA)--threads=1) $(PROGRAM_LD)
$(OUT)/tests/%: $(OBJ)/tests/%.o $(TEST_LIB_OBJ) $(OUT)/libcopse.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIB_LIBS) $(CUDA_LIBS) $(CHECK_LIBS)

# A job for mpirun, which test_mpi starts; without MPI the test skips.
MPI_JOB := $(if $(HAVE_MPI),$(OUT)/tests/runtime/mpi/job $(OUT)/tests/runtime/mpi/hang.so $(OUT)/bench/bench_mpi)
$(OBJ)/tests/runtime/mpi/%.o: CPPFLAGS += $(MPI_CFLAGS) $(if $(HAVE_UCX),-DCOPSE_HAVE_UCX)
$(OUT)/tests/runtime/mpi/hang.so: $(OBJ)/tests/runtime/mpi/hang.o
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -o $@ $^
$(OUT)/tests/runtime/mpi/job: $(OBJ)/tests/runtime/mpi/job.o $(TEST_LIB_OBJ) $(OUT)/libcopse.a $(OUT)/libcopse-mpi.so \
                              $(if $(HAVE_UCX),$(OUT)/libcopse-ucx.so)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-rpath,'$$ORIGIN/../../..' -o $@ $^ $(LIB_LIBS) $(CUDA_LIBS) $(MPI_LIBS) $(CHECK_LIBS)
$(OUT)/tests/runtime/test_mpi: | $(MPI_JOB) $(OUT)/copse $(if $(HAVE_UCX),$(OUT)/libcopse-ucx.so)

$(OUT)/tests/tune/test_plugin: | $(OUT)/libnccl-tuner-copse.so
$(OUT)/tests/api/test_python: | $(OUT)/libcopse.so $(OUT)/copse

# The drop-in in the test program itself, over the fake NCCL and driver beside it. DT_RPATH: also
# what the sanitizers load for others is found there.
FAKE_NCCL := $(OUT)/tests/nccl/fake/libnccl.so.2 $(OUT)/tests/nccl/fake/libcuda.so.1
LD_FAKE    = -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN$(1)' -Wl,--no-as-needed
$(OUT)/tests/nccl/fake/libnccl.so.2: $(OBJ)/tests/nccl/fake_nccl.o
$(OUT)/tests/nccl/fake/libcuda.so.1: $(OBJ)/tests/nccl/fake_driver.o
$(FAKE_NCCL):
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,$(@F) -o $@ $<
$(OUT)/tests/nccl/fake/job: $(OBJ)/tests/nccl/job.o $(FAKE_NCCL)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(call LD_FAKE,) -o $@ $< $(@D)/libnccl.so.2 -ldl
$(OUT)/tests/nccl/%: $(OBJ)/tests/nccl/%.o $(OBJ)/tests/nccl/nccl_support.o $(NCCL_OBJ) \
                     $(TEST_LIB_OBJ) $(OUT)/libcopse.a $(FAKE_NCCL) $(OUT)/tests/nccl/fake/job
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(NCCL_TEST_LD) $(call LD_FAKE,/fake) -o $@ \
	  $(filter %.o %.a,$^) $(@D)/fake/libnccl.so.2 $(LIB_LIBS) $(CUDA_LIBS) $(CHECK_LIBS) -ldl
# Ranks without the others' environment; each thread a process of its own.
$(OUT)/tests/nccl/test_agree_threads: NCCL_TEST_LD = \
  -Wl,--wrap=getenv,--wrap=getpid,--wrap=copse_comm_init_rank,--wrap=copse_comm_destroy \
  -Wl,--wrap=copse_nccl_record_fill

# In C++, with the emulation instead of CUDA. The emulation's folder comes before a CUDA
# toolkit's that may be in the environment.
# Without optimization in the plain build, where compiling takes longer than running; the emulation is all programs' own.
EMULATED_OPT := -O0
$(OBJ)/emulated/emulation.o: EMULATED_OPT := -O1
COMPILE_EMULATED = $(CXX) -DCOPSE_HAVE_CUDA=1 $(CPPFLAGS_ALL) -Itests/emulation -Itests $(CHECK_CFLAGS) $(CXXFLAGS_ALL) \
  $(if $(filter release,$(VARIANT)),$(EMULATED_OPT)) -MMD -MP
$(OBJ)/emulated/%.o: %.cc $(OBJ)/.flags
	$(call say,CXX,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE_EMULATED) $(TEST_FLAGS) -c $< -o $@
$(OBJ)/emulated/%.o: %.cu $(OBJ)/.flags
	$(call say,CXX,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE_EMULATED) -DCOPSE_DEVICE_CODE=1 -x c++ -c $< -o $@
$(OBJ)/emulation.cc: $(EMULATION_SRC)
	$(Q)mkdir -p $(@D)
	$(Q)printf '#include "%s"\n' $(EMULATION_SRC:tests/%=%) >$@
$(OBJ)/emulated/emulation.o: $(OBJ)/emulation.cc $(OBJ)/.flags
	$(call say,CXX,$(@F:.o=))
	$(Q)mkdir -p $(@D)
	$(Q)$(COMPILE_EMULATED) $(TEST_FLAGS) -c $< -o $@
# With an NCCL of its own, which copse finds by dlsym.
$(filter $(OUT)/tests/cuda/test_cuda_hosts%,$(TESTS)): LDFLAGS_ALL += -rdynamic
$(OUT)/tests/%: $(OBJ)/emulated/tests/%.o $(EMULATED_OBJ) $(TEST_LIB_OBJ) $(OUT)/libcopse.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS_ALL) -o $@ $^ $(LIB_LIBS) $(CUDA_LIBS) $(CHECK_LIBS)

# A job of one rank per process over the drop-in itself: over an NCCL and a driver for that, which
# use the emulation of the program.
JOB_WRAPS = $(addprefix -Wl$(COMMA)--wrap=,copse_nccl_record_fill copse_calloc copse_grow copse_arena_array)
JOB_FAKES := $(OUT)/tests/hosts/fake/libnccl.so.2 $(OUT)/tests/hosts/fake/libcuda.so.1
$(OUT)/tests/hosts/fake/libnccl.so.2: $(OBJ)/emulated/tests/hosts/job_nccl.o
$(OUT)/tests/hosts/fake/libcuda.so.1: $(OBJ)/emulated/tests/hosts/job_driver.o
$(JOB_FAKES):
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS_ALL) -shared -Wl,-soname,$(@F) -o $@ $<
$(filter $(OUT)/tests/hosts/%,$(TESTS)): $(OUT)/tests/hosts/%: $(OBJ)/emulated/tests/hosts/%.o $(OBJ)/emulated/tests/hosts/job.o $(OBJ)/tests/hosts/job_limit.o \
                      $(filter-out %/stand_in_nccl.o,$(EMULATED_OBJ)) $(NCCL_OBJ) $(TEST_LIB_OBJ) \
                      $(OUT)/libcopse.a $(JOB_FAKES)
	$(call say,LD,$@)
	$(Q)$(CXX) $(LDFLAGS_ALL) -rdynamic $(JOB_WRAPS) $(call LD_FAKE,/fake) -o $@ \
	  $(filter %.o %.a,$^) $(JOB_FAKES) $(LIB_LIBS) $(CUDA_LIBS) $(CHECK_LIBS) -ldl

# The list is for scripts/run_tests. Programs that use threads need nothing but themselves.
tests: $(if $(filter tsan,$(VARIANT)),,all) $(CHECKED)
	$(Q)printf '%s\n' $(sort $(CHECKED)) >$(OUT)/tests/list
# Runs this variant's tests only.
check-tests: tests
	$(Q)scripts/run_tests $(OUT)
check:
	$(Q)$(MAKE) --no-print-directory VARIANT=release tests
	$(Q)$(MAKE) --no-print-directory VARIANT=asan tests
	$(Q)$(MAKE) --no-print-directory VARIANT=tsan tests
	$(Q)scripts/run_tests build/tsan build/asan build

# Every test once, in a build that counts (gcc's gcov): 5 CPU minutes.
coverage:
	$(Q)$(MAKE) --no-print-directory VARIANT=coverage tests
	$(Q)find build/coverage/obj -name '*.gcda' -delete
	-$(Q)scripts/run_tests build/coverage # what fails covers too
	$(Q)scripts/coverage build/coverage/obj

# QUALITY_FLAGS=--update takes the present results as the new measure.
quality: all
	$(Q)$(OUT)/copse quality topologies --table schedules/quality.txt $(QUALITY_FLAGS)
	$(Q)$(if $(filter --max-ranks,$(QUALITY_FLAGS)),:,COPSE_BIN=$(OUT)/copse scripts/nccl_table $(filter --update,$(QUALITY_FLAGS)))

demo: all
	$(Q)scripts/demo --no-bootstrap
$(OUT)/bench/%: $(OBJ)/tests/bench/%.o $(OBJ)/tests/support/online_simulation.o $(OUT)/libcopse.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIB_LIBS) $(CUDA_LIBS)

# ---- on GPUs: needs CUDA and a GPU, no network; says so and passes where there is none ----
# The same sources run on emulated GPUs in `make check`. Linked without what a bare GPU machine
# lacks, so that a program built elsewhere runs there.
GPU_STATIC := -Wl,-Bstatic -lmd -Wl,-Bdynamic -static-libstdc++ -static-libgcc
GPU_OBJ := $(OBJ)/gpu/tests/cuda/device_case.o $(OBJ)/gpu/tests/cuda/process_case.o \
  $(patsubst %,$(OBJ)/tests/support/%.o,plan_builder plan_algorithms moe_case moe_driver random)
$(OBJ)/gpu/%.o: %.cc $(OBJ)/.flags
	$(call say,NVCC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) -Iinclude -Isrc -Itests -MMD -MP -MF $(@:.o=.d) -x cu -c $< -o $@
build/gpu/%: $(OBJ)/gpu/tests/gpu/test_%.o $(GPU_OBJ) build/libcopse.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS_ALL) -o $@ $^ $(CUDA_LIBS) $(GPU_STATIC)

gpu-plans: all
	$(Q)scripts/gpu_plans
# All that the four below need, to be carried to a machine that has a GPU and little else.
gpu-programs: gpu-plans build/gpu/check_gpu build/gpu/bench_gpu
check-gpu bench-gpu gpu gpu-first:
	$(Q)scripts/run_gpu $@
.PHONY: gpu-plans gpu-programs check-gpu bench-gpu gpu gpu-first

# Plans over MPI and UCX beside Open MPI's own collectives, between hosts made of network namespaces.
$(OBJ)/tests/bench/bench_mpi.o: CPPFLAGS += $(MPI_CFLAGS) $(if $(HAVE_UCX),-DCOPSE_HAVE_UCX)
$(OUT)/bench/bench_mpi: $(OBJ)/tests/bench/bench_mpi.o $(OUT)/libcopse.a $(OUT)/libcopse-mpi.so \
                        $(if $(HAVE_UCX),$(OUT)/libcopse-ucx.so)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-rpath,'$$ORIGIN/..' -o $@ $^ $(LIB_LIBS) $(CUDA_LIBS) $(MPI_LIBS)
bench-mpi: all $(if $(HAVE_MPI),$(OUT)/bench/bench_mpi)
	$(Q)scripts/bench_mpi $(BENCH_MPI_FLAGS)

# A cable is cut under a job over MPI: what goes on, and how soon.
demo-repair: all $(if $(HAVE_MPI),$(OUT)/bench/bench_mpi)
	$(Q)scripts/demo_repair $(DEMO_REPAIR_FLAGS)

bench: all $(OUT)/bench/bench_online
	$(Q)scripts/bench
	$(Q)scripts/bench_scale
	$(Q)scripts/bench_online
lint: $(OUT)/copse
	$(Q)scripts/check_includes
	$(Q)scripts/check_docs $(OUT)/copse
format:
	$(Q)clang-format -i $(shell git ls-files '*.c' '*.h')
bootstrap:
	$(Q)scripts/bootstrap

# ---- install ------------------------------------------------------------------------
ROOT      = $(DESTDIR)$(PREFIX)
ROOT_LIB  = $(DESTDIR)$(LIBDIR)
SHARED    = copse copse-nccl $(if $(HAVE_MPI),copse-mpi) $(if $(HAVE_UCX),copse-ucx)
# Documents lie beside each other there. A link to a file that is not installed becomes its name.
INSTALLED_LINKS = -e 's~\]\((\.\./)?docs/~](~g; s~\]\(\.\./README\.md~](README.md~g' \
  -e 's~\]\(\.\./(tests/api|\.github/workflows)/(comm_program\.c|quality\.yml)~](examples/\2~g' \
  -e 's~\[([^]]*)\]\((\.\./)?((src|tests|schedules|packaging|scripts|CONTRIBUTING)[^)]*)\)~\1 (\3 of the source)~g'
DOC_DIRS  = $(filter-out schemas/,$(patsubst docs/%,%,$(wildcard docs/*/)))
install: all
	install -d $(ROOT)/bin $(ROOT)/include/copse $(ROOT_LIB)/pkgconfig $(ROOT)/share/man/man1 \
	  $(ROOT)/share/copse/topologies $(ROOT)/share/copse/schemas $(ROOT)/share/bash-completion/completions \
	  $(ROOT)/share/zsh/site-functions $(ROOT)/share/fish/vendor_completions.d \
	  $(ROOT)/share/doc/copse/examples $(DOC_DIRS:%=$(ROOT)/share/doc/copse/%)
	install -m 755 build/copse $(ROOT)/bin/copse
	install -m 644 include/copse/*.h $(ROOT)/include/copse/
	install -m 644 build/libcopse.a $(ROOT_LIB)/
	$(foreach l,$(SHARED),install -m 755 build/lib$(l).so $(ROOT_LIB)/lib$(l).so.$(VERSION) && \
	  ln -sf lib$(l).so.$(VERSION) $(ROOT_LIB)/lib$(l).so.$(SOMAJOR) && \
	  ln -sf lib$(l).so.$(SOMAJOR) $(ROOT_LIB)/lib$(l).so &&) :
	install -m 755 build/libnccl-tuner-copse.so $(ROOT_LIB)/
	for pc in $(filter-out copse-nccl,$(SHARED)); do sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	  -e 's|@VERSION@|$(VERSION)|' -e 's|@CUDA_LIBS@|$(CUDA_LIBS:%= %)|' scripts/$$pc.pc.in \
	  >$(ROOT_LIB)/pkgconfig/$$pc.pc || exit; done
	install -m 644 build/copse.1 $(ROOT)/share/man/man1/copse.1
	install -m 644 build/copse.bash $(ROOT)/share/bash-completion/completions/copse
	install -m 644 build/copse.zsh $(ROOT)/share/zsh/site-functions/_copse
	install -m 644 build/copse.fish $(ROOT)/share/fish/vendor_completions.d/copse.fish
	install -m 644 $(wildcard topologies/*.json topologies/*.xml) $(ROOT)/share/copse/topologies/
	for f in README.md CHANGELOG.md docs/*.*; do sed -E $(INSTALLED_LINKS) $$f >$(ROOT)/share/doc/copse/$${f#docs/} && \
	  chmod 644 $(ROOT)/share/doc/copse/$${f#docs/} || exit; done
	$(foreach d,$(DOC_DIRS),install -m 644 docs/$(d)* $(ROOT)/share/doc/copse/$(d) &&) :
	install -m 644 tests/api/comm_program.c .github/workflows/quality.yml $(ROOT)/share/doc/copse/examples/
	install -m 644 docs/schemas/*.json $(ROOT)/share/copse/schemas/
	ln -sfn ../../copse/schemas $(ROOT)/share/doc/copse/schemas
uninstall:
	rm -rf $(ROOT)/bin/copse $(ROOT)/include/copse $(ROOT)/share/copse $(ROOT)/share/doc/copse \
	  $(foreach l,copse copse-nccl copse-mpi copse-ucx,$(ROOT_LIB)/lib$(l).*) $(ROOT_LIB)/libnccl-tuner-copse.so \
	  $(foreach l,copse copse-mpi copse-ucx,$(ROOT_LIB)/pkgconfig/$(l).pc) $(ROOT)/share/man/man1/copse.1 \
	  $(ROOT)/share/bash-completion/completions/copse $(ROOT)/share/zsh/site-functions/_copse \
	  $(ROOT)/share/fish/vendor_completions.d/copse.fish

clean:
	rm -rf build

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
