// SPDX-License-Identifier: Apache-2.0
//
// The common parts of the example programs' command lines: checks of values with clear error messages, and the handling
// of errors.
#pragma once

#include <charconv>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>

namespace command_line {

/// Accepts a whole number in [least, most]. CLI11's own conversion accepts -1 for a seed, truncates large numbers, and
/// reads 010 as eight.
template <class Integer>
CLI::Validator whole_number(Integer least, Integer most) {
    const auto check = [=](const std::string& given) -> std::string {
        Integer number{};
        const char* const end = given.data() + given.size();
        const auto [stop, error] = std::from_chars(given.data(), end, number);
        const bool whole = stop == end && error == std::errc{};
        const bool octal = whole && given.size() > 1 && given.front() == '0';
        if (whole && number >= least && number <= most && !octal) return {};
        if (octal) return given + " begins with a zero: remove it";
        return given + " is not a whole number from " + std::to_string(least) + " to " + std::to_string(most);
    };
    return {check, ""};
}

/// Rejects an empty value, which a shell passes for a variable that is not set.
inline CLI::Validator not_empty(const std::string& what = "path") {
    return {
        [what](const std::string& given) -> std::string { return given.empty() ? "the " + what + " is empty" : ""; },
        ""};
}

/// The error of the command line, in clearer words than CLI11's "--seed: 1 required UINT missing".
inline std::string message_of(const CLI::ParseError& error) {
    const std::string said = error.what(), name = said.substr(0, said.find(':'));
    const auto has = [&](const char* words) { return said.find(words) != std::string::npos; };
    const std::string message = has(": 1 required ") && said.ends_with(" missing") ? name + " needs a value"
                                : has(": At Most 1 required but received ")        ? name + " is given twice"
                                                                                   : said;
    return message + "; --help lists the options";
}

/// Parses the arguments and runs the program. Returns its exit status: 2 for invalid arguments, 1 for any other error,
/// each with one message on standard error.
template <class Program>
int run(CLI::App& app, int argc, char** argv, Program&& program) {
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error like a full disk; it ends no program
    const auto fail = [&](const std::string& message, int status) {
        std::cerr << app.get_name() + ": " + message + '\n';  // whole, also beside those of other processes
        return status;
    };
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return fail(message_of(error), 2);
    }
    try {
        return program();
    } catch (const std::bad_alloc&) {
        return fail("not enough memory", 1);
    } catch (const std::system_error& error) {
        return fail(std::string("a thread could not be started: ") + error.what(), 1);
    } catch (const std::exception& error) {
        return fail(error.what(), 1);
    }
}

}  // namespace command_line
