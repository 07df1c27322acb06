// SPDX-License-Identifier: Apache-2.0
#include "checksum.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <openssl/evp.h>

#include <cupola/core/error.hpp>

namespace cifar10 {

std::string checksum_of(const std::string& path, const std::string& algorithm) {
    using namespace cupola;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
    require<DataError>(file != nullptr, path, " cannot be read: ", std::strerror(errno));
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> digest(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    const EVP_MD* const kind = EVP_get_digestbyname(algorithm == "SHA-256" ? "SHA256" : algorithm.c_str());
    // A system may forbid MD5.
    require<DataError>(digest != nullptr && kind != nullptr && EVP_DigestInit_ex(digest.get(), kind, nullptr) == 1,
                       "the OpenSSL of this system does not support ", algorithm);
    std::vector<unsigned char> block(1 << 20);
    bool succeeded = true;
    for (std::size_t count = 0; (count = std::fread(block.data(), 1, block.size(), file.get())) > 0;) {
        succeeded = succeeded && EVP_DigestUpdate(digest.get(), block.data(), count) == 1;
    }
    require<DataError>(std::ferror(file.get()) == 0, path, " cannot be read: ", std::strerror(errno));
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    succeeded = succeeded && EVP_DigestFinal_ex(digest.get(), sum, &size) == 1;
    require<DataError>(succeeded, "OpenSSL could not compute the ", algorithm, " of ", path);
    std::string hexadecimal;
    for (unsigned i = 0; i < size; ++i) {
        constexpr const char* digits = "0123456789abcdef";
        hexadecimal += {digits[sum[i] >> 4], digits[sum[i] & 15]};
    }
    return hexadecimal;
}

}  // namespace cifar10
