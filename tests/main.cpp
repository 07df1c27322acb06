// SPDX-License-Identifier: Apache-2.0
//
// The main function of every test program. A run whose filters match no test case fails: a misspelt file name in the
// build would otherwise be a test that cannot fail. With CUPOLA_TEST_NAMES in the environment the name of each case is
// printed when it begins, and what it prints is not kept back, so that the output of a run that hangs or is ended says
// where. The program of Cuda's tests (gpu/) ends with status 77, "skipped", and one message where there is no GPU; with
// names it is aborted behind a case that has lost the GPU, since every later case would fail for it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#ifdef CUPOLA_TEST_CUDA
#include <cupola/device/cuda.hpp>
#else
#include "instructions.hpp"
#endif
#include "case_listener.hpp"

namespace {

unsigned cases_run = 0;
bool prints_names = false;

struct CountCases : CaseListener {
    using CaseListener::CaseListener;
    void test_case_start(const doctest::TestCaseData& test_case) override {
        if (!prints_names) return;
        std::printf("[case] %s\n", test_case.m_name);
        std::fflush(stdout);
    }
#ifdef CUPOLA_TEST_CUDA
    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        if (!prints_names) return;
        const cudaError_t lasting = cupola::impl::lasting_cuda_error();
        if (!cupola::impl::loses_device(lasting)) return;
        std::printf("the GPU is lost: %s\n", cudaGetErrorString(lasting));
        std::fflush(stdout);
        std::abort();
    }
#endif
    void test_run_end(const doctest::TestRunStats& run) override { cases_run = run.numTestCasesPassingFilters; }
};

REGISTER_LISTENER("count_cases", 1, CountCases);

}  // namespace

int main(int argc, char** argv) {
    constexpr const char* names_variable = "CUPOLA_TEST_NAMES";
    prints_names = std::getenv(names_variable) != nullptr;
    unsetenv(names_variable);  // a program that a test starts does not have it
    if (prints_names) std::setvbuf(stdout, nullptr, _IOLBF, 0);
    doctest::Context context(argc, argv);
#ifdef CUPOLA_TEST_CUDA
    try {
        static_cast<void>(cupola::cuda_devices());
    } catch (const cupola::DeviceError& error) {
        std::fprintf(stderr, "skipped: %s\n", error.what());
        return 77;
    }
#else
    if (!computes_bfloat16()) context.addFilter("test-case-exclude", "*BFloat16>*");
#endif
    const int result = context.run();
    if (context.shouldExit()) return result;
    if (cases_run == 0) {
        std::fputs("no test case matches\n", stderr);
        return 1;
    }
    return result;
}
